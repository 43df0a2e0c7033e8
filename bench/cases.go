package bench

import (
	_ "embed"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/bench/report"
)

//go:embed cases.yaml
var casesYAML []byte

// tables are what is measured: cases.yaml has it, and says what is what.
var tables = sync.OnceValue(func() *tablesOf {
	t := report.Data[tablesOf](casesYAML)
	for _, list := range [][]*tableCase{t.Cases, t.Formats} {
		for _, c := range list {
			if c.Case.Bars = report.Bars("cpu", c.Bars...); c.Family == "" { // a family of its own
				c.Family = c.Name
				t.Families = append(t.Families, &family{Name: c.Name, Set: c.Name, format: c})
			}
		}
	}
	return &t
})

type tablesOf struct {
	Scenarios []Scenario
	Sets      map[string]setRecipe
	TrainSets map[string]struct {
		Name        string
		Whole, Tiny synthRecipe
	}
	HDF5   map[string]synthRecipe // files of robocache-bench formats
	Models map[string]struct {
		Batch  int
		Frames bool
		Set    string
	}
	Modes                                  map[string][]string
	Loaders, Trajectories, Decoders, Peers map[string]program
	Families                               []*family
	Cases, Formats                         []*tableCase
	Kinds                                  map[string]map[string]program
}

// Case is a workload, who runs it, and what is asked of ours.
type Case struct {
	Name    string // as in --workload
	Title   string
	Family  string // cases of one family share their runners in one interleaved run
	Runners []string
	Bars    []report.Bar
}

// tableCase is a Case as cases.yaml states it, with the fields that `robocache-bench formats` alone
// reads.
type tableCase struct {
	Case
	Bars             []string
	Data, Kind, File string
	Job              options
	Jobs             map[string]options
}

// family is what the runners of its cases have in common: the same samples in the same shape.
type family struct {
	Name, Set           string
	Window, Size, Count int
	Video, Slow         bool
	Runners             map[string]program
	format              *tableCase // of `robocache-bench formats`
}

// program is how a runner is started: a Python script, or a kind of job that Serve knows; its
// setting in words (%d: its workers); and what its job has beside the case's.
type program struct {
	Run, Setting string
	Job          options
	Set          string   // that it reads in place of the family's
	Env          []string // more
	Python       string   // an interpreter of its own
	Checked      bool     // order and frames of a runner of a format are looked at
}

// familyOf finds a family; nil: there is none.
func familyOf(name string) *family {
	for _, f := range tables().Families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// familiesOf are the families of cases, each once.
func familiesOf(cases []Case) (out []*family) {
	for _, c := range cases {
		if f := familyOf(c.Family); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// CasesNamed picks cases of a table, peers or formats, by name; nil picks all.
func CasesNamed(table string, names []string) (out []Case, err error) {
	list := tables().Cases
	if table == "formats" {
		list = tables().Formats
	}
	if names != nil {
		list, err = report.Pick(
			"workload",
			list,
			func(c *tableCase) string { return c.Name },
			names,
		)
	}
	for _, c := range list {
		out = append(out, c.Case)
	}
	return out, err
}
