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

// Run runs every vector on the back end. It runs vectors of plans twice: by their times in a
// FuseOp, and by the stored plan in an ApplyOp. Run returns the number of cases and the failures.
func Run(b kernel.Backend) (ran int, failures []error) {
	s := suite{backend: b}
	for _, file := range listFiles(".") {
		runFile[Case](&s, file)
	}
	for _, file := range listFiles("ops") {
		runFile[opCase](&s, file)
	}
	runFile[largeCase](&s, "ops/large.json")
	runFile[hourCase](&s, "large.json")
	voxels, wrong := RunVoxels(b)
	images, wrongImages := RunImages(b)
	return s.ran + voxels + images, slices.Concat(s.failures, wrong, wrongImages)
}

// suite counts the cases and collects the failures.
type suite struct {
	backend  kernel.Backend
	ran      int
	failures []error
}

// caseName is the name field of every vector.
type caseName struct {
	Name string `json:"name"`
}

// title returns the name of the case, for errors.
func (n *caseName) title() string { return n.Name }

// runFile runs all vectors of a file, which have type C, and adds the results to the suite. V is
// *C.
func runFile[C any, V interface {
	*C
	title() string
	runCase(b kernel.Backend) error
}](s *suite, file string) {
	cases, err := loadCases[C](file)
	if err != nil {
		s.failures = append(s.failures, err)
	}
	for i := range cases {
		s.ran++
		c := V(&cases[i])
		if err := c.runCase(s.backend); err != nil {
			s.failures = append(s.failures, fmt.Errorf("%s: %s: %w", file, c.title(), err))
		}
	}
}

// loadCases reads the vectors of a file in testdata/vectors.
func loadCases[C any](file string) ([]C, error) {
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

// listFiles returns the files in a folder of vectors, except scalar.json and large.json, which have
// other fields.
func listFiles(folder string) (names []string) {
	entries, _ := kernel.Vectors.ReadDir(path.Join("testdata/vectors", folder))
	for _, e := range entries {
		if !e.IsDir() && e.Name() != "scalar.json" && e.Name() != "large.json" {
			names = append(names, path.Join(folder, e.Name()))
		}
	}
	return names
}

// ExpectedError is the error that a case expects.
type ExpectedError struct {
	Class  string `json:"class"`
	Phrase string `json:"phrase"`
}

// classes maps the class of an ExpectedError to the error of package robocache. Files use a short
// or a long name.
var classes = map[string]error{
	"misuse":                           robocache.ErrMisuse,
	"malformed":                        robocache.ErrMalformed,
	"unsupported":                      robocache.ErrUnsupported,
	"resource":                         robocache.ErrResourceLimit,
	robocache.ErrMalformed.Error():     robocache.ErrMalformed,
	robocache.ErrResourceLimit.Error(): robocache.ErrResourceLimit,
}

// runExpecting runs an operation on the back end and compares its error. It reports whether there
// are results to compare. If the operation succeeds, its inputs must be unchanged.
func (e *ExpectedError) runExpecting(b kernel.Backend, op kernel.Op) (bool, error) {
	before := inputBytes(op)
	err := b.Run(op)
	if e == nil {
		if err != nil {
			return false, err
		}
		if inputBytes(op) != before {
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

// inputBytes returns the memory of all tensors that an operation only reads.
func inputBytes(op kernel.Op) string {
	var s []byte
	results := kernel.Results(op)
	for _, t := range op.Tensors() {
		if !slices.Contains(results, t) {
			s = append(s, t.Data...)
		}
	}
	return string(s)
}
