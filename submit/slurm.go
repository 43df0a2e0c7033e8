package submit

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Slurm writes the scripts of an array job and of the following commit job.
type Slurm struct {
	Plan
	Name string
	Out  string // folder for the scripts
	// Folder for the output of jobs, visible to the nodes. Relative paths are below Out.
	Logs     string
	Parallel int // maximum concurrent shards over all arrays; 0 means no limit
	Retries  int
	// MaxArraySize of the cluster. 0 asks the cluster and uses 1001 if it does not respond.
	MaxArray int
	Partial  bool     // commit the available shards
	Sbatch   []string // options of all jobs, such as --partition=cpu
	Array    []string // options of arrays only, such as --gpus=1
}

// Chunk is one array job. Offset is added to its indices to get shard numbers.
type Chunk struct {
	Indices string
	Offset  int
}

// Arrays divides the missing shards into arrays that the cluster accepts. An index must be below
// MaxArraySize.
func (s *Slurm) Arrays() (out []Chunk) {
	size := cmp.Or(s.MaxArray, 1001)
	for at := 0; at < len(s.Missing); {
		offset := s.Missing[at] / size * size
		var indices []int
		for ; at < len(s.Missing) && s.Missing[at] < offset+size; at++ {
			indices = append(indices, s.Missing[at]-offset)
		}
		out = append(out, Chunk{Ranges(indices), offset})
	}
	return out
}

// Write writes array.sh, commit.sh and submit.sh.
func (s *Slurm) Write(ctx context.Context) error {
	if s.MaxArray == 0 {
		s.MaxArray = askMaxArray(ctx)
	}
	return writeTemplates(s.Out, 0o755, s.scriptValues(), "array.sh", "commit.sh", "submit.sh")
}

// scriptValues returns the values of the templates, quoted for sh (submit.S6).
func (s *Slurm) scriptValues() map[string]string {
	v := map[string]string{
		"program": Words(
			s.Program,
		),
		"manifest": Word(s.Manifest),
		"final":    finalCodes(" | "),
		"retries":  strconv.Itoa(s.Retries),
		"missing": strconv.Itoa(
			len(s.Missing),
		),
		"total":  strconv.Itoa(s.Total),
		"chunks": strconv.Itoa(len(s.Arrays())),
		"logs": Word(
			s.Logs,
		),
		"name":        Word(s.Name),
		"log":         Word(s.Logs + "/%x-%A_%a.log"),
		"commit-name": Word(s.Name + "-commit"),
		"commit-log":  Word(s.Logs + "/%x-%j.log"),
		"options": Words(
			s.Sbatch,
		),
		"array-options": Words(append(slices.Clone(s.Sbatch), s.Array...)),
		"at-once":       "",
		"after-last":    "",
		"partial":       "",
		"after":         "afterok",
		"arrays":        "",
	}
	if s.Parallel > 0 {
		v["at-once"], v["after-last"] = fmt.Sprintf("%%%d", s.Parallel),
			` ${last:+"--dependency=afterany:$last"}`
	}
	if s.Partial {
		v["partial"], v["after"] = " --partial", "afterany"
	}
	for _, c := range s.Arrays() {
		v["arrays"] += fmt.Sprintf("array %s %d\n", c.Indices, c.Offset)
	}
	return v
}

var maxArrayLine = regexp.MustCompile(`(?m)^MaxArraySize\s*=\s*(\d+)`)

func askMaxArray(ctx context.Context) int {
	out, _ := exec.CommandContext(ctx, "scontrol", "show", "config").Output()
	if m := maxArrayLine.FindSubmatch(out); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	return 0
}

// Submit runs submit.sh. It returns the job ids; the commit is the last one.
func (s *Slurm) Submit(ctx context.Context) (jobs []string, err error) {
	var errs bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(s.Out, "submit.sh"))
	c.Stderr = &errs
	out, err := c.Output()
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if _, id, ok := strings.Cut(line, " "); ok {
			jobs = append(jobs, id)
		}
	}
	if err != nil {
		err = robocache.Unsupported("submit slurm", robocache.Where{
			"file": c.Path,
		}, "%s", lastLine(errs.String())).
			WithCause(err).
			WithHint("submitted jobs are listed above; scancel ends them")
	}
	return jobs, err
}

//go:embed templates
var templates embed.FS

// writeTemplates fills templates and writes them to a folder.
func writeTemplates(dir string, mode os.FileMode, values map[string]string, names ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, fillTemplate(name, values), mode); err != nil {
			return robocache.At(err, robocache.Where{"file": path})
		}
	}
	return nil
}

// fillTemplate returns a template with {{name}} replaced by its value. It does not use
// text/template, which calls methods by name and therefore prevents the linker from removing unused
// exported methods. That would add 8 MB to the library.
func fillTemplate(name string, values map[string]string) []byte {
	pairs := make([]string, 0, 2*len(values))
	for k, v := range values {
		pairs = append(pairs, "{{"+k+"}}", v)
	}
	text, err := templates.ReadFile("templates/" + name + ".tmpl")
	if err != nil {
		panic(err) // The template is embedded.
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text)))
}

func finalCodes(between string) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(Final), "[]"), " ", between)
}

// yamlText returns a value as JSON, which is valid YAML. v holds texts and numbers, which always
// encode.
func yamlText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Words quotes texts as words of sh.
func Words(list []string) string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = Word(w)
	}
	return strings.Join(out, " ")
}

// Word quotes a text as one word of sh (submit.S6).
func Word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("@%_+=:,./-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
