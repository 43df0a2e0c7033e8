package bench

import (
	_ "embed"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/bench/report"
)

//go:embed cases.yaml
var casesYAML []byte

// caseTables returns the parsed cases.yaml, which defines and describes all measurements.
var caseTables = sync.OnceValue(func() *caseTableData {
	t := report.Data[caseTableData](casesYAML)
	for _, list := range [][]*tableCase{t.Cases, t.Formats, t.Clients} {
		for _, c := range list {
			// a case without a family gets its own
			if c.Case.Bars = report.Bars("cpu", c.Bars...); c.Family == "" {
				c.Family = c.Name
				t.Families = append(t.Families, &family{Name: c.Name, Set: c.Name, format: c})
			}
		}
	}
	return &t
})

type caseTableData struct {
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
	Cases, Formats, Clients                []*tableCase
	Kinds                                  map[string]map[string]program
}

// Case is a workload with its runners and the bars that RoboCache must meet.
type Case struct {
	Name    string // the value of --workload
	Title   string
	Family  string // cases of one family share their runners in one interleaved measurement
	Runners []string
	Bars    []report.Bar
}

// tableCase is a Case as written in cases.yaml. The additional fields belong to `robocache-bench
// formats` and `robocache-bench clients`.
type tableCase struct {
	Case
	Bars             []string
	Data, Kind, File string
	Package          string // the package of a client
	Job              options
	Jobs             map[string]options
}

// family holds the settings that the runners of its cases share: the same samples in the same
// shape.
type family struct {
	Name, Set           string
	Window, Size, Count int
	Video, Slow         bool
	Runners             map[string]program
	format              *tableCase // set for a case of `robocache-bench formats`
}

// program describes how to start a runner. Run is a Python script, or a kind of job that Serve
// accepts. Setting describes the options in words; %d stands for the number of workers. Job
// overrides fields of the job of the case.
type program struct {
	Run, Setting string
	Job          options
	Set          string   // replaces the set of the family
	Env          []string // additional variables
	Python       string   // a different interpreter
	Checked      bool     // check order and frames (runners of formats only)
}

// familyOf returns the family with the given name, or nil.
func familyOf(name string) *family {
	for _, f := range caseTables().Families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// familiesOf returns the families of cases, without duplicates.
func familiesOf(cases []Case) (out []*family) {
	for _, c := range cases {
		if f := familyOf(c.Family); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// CasesNamed returns the named cases of a table: peers, formats or clients. If names is nil, it
// returns all.
func CasesNamed(table string, names []string) (out []Case, err error) {
	list := caseTables().Cases
	switch table {
	case "formats":
		list = caseTables().Formats
	case "clients":
		list = caseTables().Clients
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
