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

// Run gives every vector to the back end; a plan's by its times through Fuse, and as it is stored through Apply. It returns how many ran, and the
// failures.
func Run(b kernel.Backend) (ran int, failures []error) {
	var s suite
	for _, file := range files(".") {
		each(&s, file, func(c *Case) (string, error) { return c.Name, c.run(b) })
	}
	for _, file := range files("ops") {
		each(&s, file, func(c *opCase) (string, error) { return c.Name, c.run(b) })
	}
	each(&s, "ops/large.json", func(c *largeCase) (string, error) { return c.Name, c.run(b) })
	each(&s, "large.json", func(c *hour) (string, error) { return c.Name, c.run(b) })
	voxels, wrong := RunVoxels(b)
	images, wrongImages := RunImages(b)
	return s.ran + voxels + images, slices.Concat(s.failures, wrong, wrongImages)
}

// suite counts vectors.
type suite struct {
	ran      int
	failures []error
}

// each runs the vectors of a file.
func each[C any](s *suite, file string, run func(*C) (name string, err error)) {
	cases, err := load[C](file)
	if err != nil {
		s.failures = append(s.failures, err)
	}
	for i := range cases {
		s.ran++
		if name, err := run(&cases[i]); err != nil {
			s.failures = append(s.failures, fmt.Errorf("%s: %s: %w", file, name, err))
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

// files are those of a folder of vectors; scalar.json and large.json have contents of their own and are left out.
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

var classes = map[string]error{"misuse": robocache.ErrMisuse, "malformed": robocache.ErrMalformed, "unsupported": robocache.ErrUnsupported, "resource": robocache.ErrResourceLimit,
	robocache.ErrMalformed.Error(): robocache.ErrMalformed, robocache.ErrResourceLimit.Error(): robocache.ErrResourceLimit}

// failed compares an error with the one that is wanted; done says that there is nothing more to compare.
func (e *ExpectedError) failed(err error) (done bool, _ error) {
	if e == nil {
		return err != nil, err
	}
	class := classes[e.Class]
	if class == nil {
		return true, fmt.Errorf("no such class: %q", e.Class)
	}
	if !errors.Is(err, class) || !strings.Contains(err.Error(), e.Phrase) {
		return true, fmt.Errorf("%v, want %s: %s", err, e.Class, e.Phrase)
	}
	return true, nil
}

// checked runs an op and compares its error; where there is none, done is false, and the inputs are as they were.
func (e *ExpectedError) checked(inputs []*kernel.Tensor, run func() error) (done bool, _ error) {
	before := memory(inputs)
	if done, err := e.failed(run()); done {
		return true, err
	}
	if memory(inputs) != before {
		return true, errors.New("an input was written to")
	}
	return false, nil
}
