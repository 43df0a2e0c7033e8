package tartanair

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// poseWidth is the number of columns of a pose.
const poseWidth = 7

// table is the content of a text of poses, or of an npy file.
type table struct {
	values []float64 // of poses and times
	blank  []bool    // lines of poses without numbers; nil: none
	array  *npy.Array
	rows   int
}

// readFile reads a whole file within the budget.
func (d *Dataset) readFile(ctx context.Context, name string) ([]byte, error) {
	b, err := store.ReadFile(ctx, d.Bytes, name, d.budget)
	return b, robocache.At(err, robocache.Where{"file": name})
}

// loadTable returns a file that is parsed, from the cache if it is there.
func (d *Dataset) loadTable(
	ctx context.Context, name string, parse func(b []byte) (*table, error),
) (*table, error) {
	return d.cache.Load(ctx, name, func() (t *table, size int64, err error) {
		defer crash.Recover("tartanair read", &err)
		b, err := d.readFile(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if t, err = parse(b); err != nil {
			return nil, 0, robocache.At(err, robocache.Where{"file": name})
		}
		return t, int64(len(b)) + int64(8*len(t.values)+len(t.blank)) + 128, nil
	})
}

// parsePoses parses a pose per line. Blank lines at the end are left out.
func parsePoses(b []byte) (*table, error) {
	t := &table{}
	text := strings.TrimRight(string(b), " \t\r\n")
	if text == "" {
		return t, nil
	}
	for line := range strings.Lines(text) {
		t.rows++
		fields := strings.Fields(line)
		t.blank = append(t.blank, len(fields) == 0)
		if len(fields) == 0 {
			t.values = append(t.values, make([]float64, poseWidth)...)
			continue
		}
		if len(fields) != poseWidth {
			return nil, robocache.Malformed(string(op), robocache.Where{"line": t.rows}, "a pose").
				Expected("7 numbers: x y z qx qy qz qw", strconv.Itoa(len(fields))).
				WithHint("Fetch the file again.")
		}
		for _, field := range fields {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, robocache.Malformed(string(op), robocache.Where{"line": t.rows}, "").
					Expected("a number", strconv.Quote(field[:min(len(field), 40)]))
			}
			t.values = append(t.values, v)
		}
	}
	return t, nil
}

// parseArray parses an npy file of numbers.
func parseArray(b []byte) (*table, error) {
	a, err := npy.Decode(b)
	if err != nil {
		return nil, err
	}
	if len(a.Shape) == 0 || a.Type.DType().Size() == 0 {
		return nil, robocache.Unsupported(string(op), nil, "an array of %s %v", a.Type, a.Shape)
	}
	return &table{array: a, rows: a.Shape[0]}, nil
}

// parseTimes parses an npy file of times in seconds. The values are nanoseconds.
func parseTimes(b []byte) (*table, error) {
	t, err := parseArray(b)
	if err != nil {
		return nil, err
	}
	if t.array.Len() != t.rows {
		return nil, robocache.Malformed(string(op), nil, "times").
			Expected("one per row", fmt.Sprint(t.array.Shape))
	}
	t.values = robocache.Float64s(nil, t.array.Type.DType(), t.array.Data)
	for i, v := range t.values {
		ns := math.RoundToEven(v * 1e9)
		if !(math.Abs(ns) < math.MaxInt64) || i > 0 && ns < t.values[i-1] {
			return nil, robocache.Malformed(string(op), robocache.Where{"row": i}, "").
				Expected("ascending seconds", strconv.FormatFloat(v, 'g', -1, 64))
		}
		t.values[i] = ns
	}
	t.array = nil
	return t, nil
}

// line returns the line of a file with n lines that belongs to a row (tartanair.T3).
func (t *trajectory) line(row, n int, what string) (int, error) {
	first, last := t.numbers[0], t.numbers[len(t.numbers)-1]
	switch {
	case n == len(t.numbers):
		return row, nil
	case int64(n) == last-first+1:
		return int(t.numbers[row] - first), nil
	}
	return 0, robocache.Malformed(string(op), nil, "%d %s for %d frames, and nothing says which "+
		"belong together", n, what, len(t.numbers)).
		WithHint("Fetch the file and the frames again, or leave the trajectory out: %s",
			robocache.Option("on_bad_episode", "skip"))
}

// poseOf writes the pose of a row as little-endian float64.
func (d *Dataset) poseOf(
	ctx context.Context, e *trajectory, key string, row int, dst []byte,
) error {
	name := e.files[key]
	t, err := d.loadTable(ctx, name, parsePoses)
	if err != nil {
		return err
	}
	where := robocache.Where{"file": name}
	line, err := e.line(row, t.rows, "poses")
	if err != nil {
		return robocache.At(err, where)
	}
	if t.blank[line] {
		return robocache.At(robocache.Malformed(string(op), robocache.Where{"line": line + 1},
			"the row has no pose: its line is blank"), where)
	}
	putFloats(dst, t.values[line*poseWidth:(line+1)*poseWidth])
	return nil
}

// timesOf returns the times of the rows, or of the IMU, in nanoseconds. ok is false if there is no
// file.
func (d *Dataset) timesOf(
	ctx context.Context, e *trajectory, name string,
) (out []int64, ok bool, err error) {
	file := e.files[prefixes[inertialKind]+name]
	if file == "" {
		return nil, false, nil
	}
	t, err := d.loadTable(ctx, file, parseTimes)
	if err != nil {
		return nil, true, err
	}
	if name == imuTimes {
		out = make([]int64, t.rows)
		for i, v := range t.values {
			out[i] = int64(v)
		}
		return out, true, nil
	}
	out = make([]int64, len(e.numbers))
	for row := range out {
		line, err := e.line(row, t.rows, "times")
		if err != nil {
			return nil, true, robocache.At(err, robocache.Where{"file": file})
		}
		out[row] = int64(t.values[line])
	}
	return out, true, nil
}
