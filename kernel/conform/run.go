package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Run gives every vector to the back end; a plan's by its times through a FuseOp, and as it is
// stored through an ApplyOp. It returns how many ran, and the failures.
func Run(b kernel.Backend) (ran int, failures []error) {
	s := suite{b: b}
	for _, file := range files(".") {
		each[Case](&s, file)
	}
	for _, file := range files("ops") {
		each[opCase](&s, file)
	}
	each[largeCase](&s, "ops/large.json")
	each[hour](&s, "large.json")
	voxels, wrong := RunVoxels(b)
	images, wrongImages := RunImages(b)
	return s.ran + voxels + images, slices.Concat(s.failures, wrong, wrongImages)
}

// suite counts vectors.
type suite struct {
	b        kernel.Backend
	ran      int
	failures []error
}

// named is what every vector has; it fails into the guard of each.
type named struct {
	Name string `json:"name"`
}

func (n *named) title() string { return n.Name }

// each runs the vectors of a file.
func each[C any, V interface {
	*C
	title() string
	run(b kernel.Backend) error
}](s *suite, file string) {
	cases, err := load[C](file)
	if err != nil {
		s.failures = append(s.failures, err)
	}
	for i := range cases {
		s.ran++
		if err := func() error {
			return V(&cases[i]).run(s.b)
		}(); err != nil {
			s.failures = append(
				s.failures,
				fmt.Errorf("%s: %s: %w", file, V(&cases[i]).title(), err),
			)
		}
	}
}

func load[C any](file string) ([]C, error) {
	raw, err := kernel.Vectors.ReadFile(path.Join("testdata/vectors", file))
	var f struct{ Cases []C }
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return f.Cases, nil
}

// files are those of a folder of vectors; scalar.json and large.json have contents of their own and
// are left out.
func files(folder string) (names []string) {
	entries, _ := kernel.Vectors.ReadDir(path.Join("testdata/vectors", folder))
	for _, e := range entries {
		if !e.IsDir() && e.Name() != "scalar.json" && e.Name() != "large.json" {
			names = append(names, path.Join(folder, e.Name()))
		}
	}
	return names
}

// ExpectedError is what a case fails with.
type ExpectedError struct {
	Class  string `json:"class"`
	Phrase string `json:"phrase"`
}

var classes = map[string]error{
	"misuse":                           robocache.ErrMisuse,
	"malformed":                        robocache.ErrMalformed,
	"unsupported":                      robocache.ErrUnsupported,
	"resource":                         robocache.ErrResourceLimit,
	robocache.ErrMalformed.Error():     robocache.ErrMalformed,
	robocache.ErrResourceLimit.Error(): robocache.ErrResourceLimit,
}

// runs gives an op to the back end and compares its error. It says whether there are results to
// compare; the inputs are as they were then.
func (e *ExpectedError) runs(b kernel.Backend, op kernel.Op) (bool, error) {
	before := inputs(op)
	err := b.Run(op)
	if e == nil {
		if err != nil {
			return false, err
		}
		if inputs(op) != before {
			return false, errors.New("an input was written to")
		}
		return true, nil
	}
	class := classes[e.Class]
	if class == nil {
		return false, fmt.Errorf("no such class: %q", e.Class)
	}
	if !errors.Is(err, class) || !strings.Contains(err.Error(), e.Phrase) {
		return false, fmt.Errorf("%v, want %s: %s", err, e.Class, e.Phrase)
	}
	return false, nil
}

// inputs is the memory of what an op reads alone.
func inputs(op kernel.Op) string {
	var s []byte
	results := kernel.Results(op)
	for _, t := range op.Tensors() {
		if !slices.Contains(results, t) {
			s = append(s, t.Data...)
		}
	}
	return string(s)
}
