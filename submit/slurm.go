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
	"strconv"
	"strings"
	"text/template"

	"github.com/goatnote-inc/robocache"
)

// Slurm writes the scripts of an array job and of the commit behind it.
type Slurm struct {
	Plan
	Name     string
	Out      string // the folder that they are written to
	Logs     string // the folder of the jobs' output, which the nodes see; relative ones are below Out
	Parallel int    // shards at once, over all arrays; 0: as the cluster allows
	Retries  int
	MaxArray int      // the cluster's MaxArraySize; 0: it is asked, and 1001 where it does not answer
	Partial  bool     // commit what there is
	Sbatch   []string // options of all jobs, such as --partition=cpu
	Array    []string // and of the arrays alone, such as --gpus=1
}

// Chunk is one array job: its indices, and what must be added to get shards.
type Chunk struct {
	Indices string
	Offset  int
}

// Arrays cuts the missing shards into arrays that the cluster takes: an index is below MaxArraySize.
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
	return write(s.Out, 0o755, s, "array.sh", "commit.sh", "submit.sh")
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

// Submit runs what was written; it gives the jobs, the commit last.
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
		err = &robocache.Error{Class: robocache.ErrUnsupported, Op: "submit slurm", Where: robocache.Where{"file": c.Path}, Msg: lastLine(errs.String()), Err: err, Hint: "jobs that were submitted stand above; scancel ends them"}
	}
	return jobs, err
}

//go:embed templates
var templates embed.FS

// write fills templates in a folder.
func write(dir string, mode os.FileMode, data any, names ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	for _, name := range names {
		text, err := fill(name, data)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, mode); err != nil {
			return robocache.At(err, robocache.Where{"file": path})
		}
	}
	return nil
}

// fill gives the text of a template.
func fill(name string, data any) ([]byte, error) {
	t, err := template.New(name+".tmpl").Funcs(template.FuncMap{"word": Word, "words": Words, "yaml": yamlText, "final": final}).ParseFS(templates, "templates/"+name+".tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, data)
	return b.Bytes(), err
}

func final(between string) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(Final), "[]"), " ", between)
}

// yamlText is a value as JSON, which YAML reads as it is.
func yamlText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// Words makes a line of sh of any texts.
func Words(list []string) string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = Word(w)
	}
	return strings.Join(out, " ")
}

// Word makes one word of sh of any text (S6).
func Word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%_+=:,./-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
