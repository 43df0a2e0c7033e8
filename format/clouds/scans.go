package clouds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/store"
)

// episode contains the scans of a folder or a log.
type episode struct {
	name       string
	scans      []scan
	timestamps []int64 // nil if they follow from the rate
}

type scan struct {
	name   string
	number int64 // number in the file name: a counter, or microseconds
	size   int64
	err    error // error of opening an entry that is not a file
}

const maxSide = 256 << 20 // bytes of a file of timestamps

// listScans finds the scans.
func (d *Dataset) listScans(ctx context.Context) error {
	files, links, err := store.Files(
		ctx,
		d.Bytes,
		"",
		func(name string) bool { _, ok := d.src.scanNumber(path.Base(name)); return ok },
	)
	if err != nil {
		return err
	}
	d.About.Findings = append(d.About.Findings, store.Findings(links, "link-not-followed")...)
	d.About.Findings = append(
		d.About.Findings,
		limitFindings(store.Findings(files, "unreadable-file"))...)
	by := map[string]*episode{}
	for _, f := range files {
		base, dir := path.Base(f.Name), path.Dir(f.Name)
		n, _ := d.src.scanNumber(base)
		group := dir
		if d.src.name == "nuscenes" {
			group, _, _ = strings.Cut(base, "__") // the log: its scans are in samples/ and sweeps/
		}
		if by[group] == nil {
			by[group] = &episode{name: group}
		}
		by[group].scans = append(by[group].scans, scan{f.Name, n, f.Size, f.Err})
	}
	for _, e := range by {
		slices.SortFunc(
			e.scans,
			func(a, b scan) int {
				return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
			},
		)
		d.episodes = append(d.episodes, *e)
	}
	slices.SortFunc(d.episodes, func(a, b episode) int { return cmp.Compare(a.name, b.name) })
	if len(d.episodes) == 0 && len(links) > 0 {
		return links[0].Err
	}
	if len(d.episodes) == 0 {
		return robocache.NotFound("clouds open", nil, "no scans (*%s) here", d.src.suffix)
	}
	return nil
}

// limitFindings keeps the first findings. The last of them contains the count of the rest.
func limitFindings(found []robocache.Finding) []robocache.Finding {
	const most = 20
	if len(found) > most {
		found[most-1].Count = int64(len(found) - most + 1)
		found[most-1].Message += " (and more files, counted together)"
		found = found[:most]
	}
	return found
}

// describeArrays determines the type and the columns from the header of the first array.
func (d *Dataset) describeArrays(ctx context.Context, columns []string) (_ []string, err error) {
	first := d.episodes[0].scans[0]
	for _, e := range d.episodes {
		if i := slices.IndexFunc(e.scans, func(s scan) bool { return s.err == nil }); i >= 0 {
			first = e.scans[i]
			break
		}
	}
	defer robocache.LocateIn(&err, "file", first.name)
	r, err := d.Bytes.Open(ctx, first.name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, min(r.Size(), 10_240))
	if err := r.ReadAt(ctx, b, 0); err != nil {
		return nil, err
	}
	h, err := npy.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if len(h.Shape) != 2 || h.Shape[1] < 3 || h.Shape[1] > 64 || !h.Type.DType().Float() {
		return nil, bad(
			"an array of %s %v is not a cloud, which has floats of shape [points, 3 or more]",
			h.Type,
			h.Shape,
		)
	}
	d.dtype = h.Type.DType()
	if columns != nil {
		if len(columns) != h.Shape[1] {
			return nil, robocache.Misuse("clouds open", nil, "option columns").
				Expected(fmt.Sprintf("%d names", h.Shape[1]), fmt.Sprint(len(columns)))
		}
		return columns, nil
	}
	columns = []string{"x", "y", "z"}
	for i := 3; i < h.Shape[1]; i++ {
		columns = append(columns, fmt.Sprintf("feature%d", i-3))
	}
	return columns, nil
}

// findTimestamps determines the timestamps (clouds.P4).
func (d *Dataset) findTimestamps(ctx context.Context) error {
	if d.src.name == "nuscenes" {
		for i := range d.episodes {
			e := &d.episodes[i]
			e.timestamps = make([]int64, len(e.scans))
			for k, s := range e.scans {
				if s.number > math.MaxInt64/1000 {
					return robocache.At(
						malformed("a timestamp of %d µs", s.number),
						robocache.Where{"file": s.name},
					)
				}
				e.timestamps[k] = s.number * 1000
			}
		}
		if d.rate.Zero() {
			d.rate = robocache.Rate{Num: 20, Den: 1}
		}
		return nil
	}
	if !d.rate.Zero() {
		return nil // set by the caller
	}
	missing := 0
	for i := range d.episodes {
		if err := d.readTimestampFile(ctx, &d.episodes[i]); err != nil {
			return err
		}
		if d.episodes[i].timestamps == nil {
			missing++
		}
	}
	d.rate = d.src.hz // if it is zero, a request for timestamps is an error
	if missing > 0 && !d.rate.Zero() {
		d.About.Findings = append(
			d.About.Findings,
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "no-timestamps",
				Message: fmt.Sprintf(
					"%d folders of scans have no timestamps.txt or times.txt: their rows are "+
						"given at %s Hz",
					missing,
					d.rate,
				),
				Count: int64(missing),
				Hint:  "Set another rate with " + robocache.Option("rows_hz"),
			},
		)
	}
	return nil
}

// readTimestampFile reads the timestamps next to a folder of scans.
func (d *Dataset) readTimestampFile(ctx context.Context, e *episode) error {
	for _, dir := range slices.Compact([]string{e.name, path.Dir(e.name)}) {
		if err := d.readTimestampFileIn(ctx, d.Bytes, dir, e); err != nil {
			return err
		}
		if e.timestamps != nil {
			return nil
		}
	}
	if e.name != "." || d.parent == "" {
		return nil
	}
	// The root is the folder of scans, so the file may be outside the root.
	s, err := store.OpenFor(d.parent, robocache.OpenOptions{FollowLinks: d.followLinks})
	if err != nil {
		return nil
	}
	defer store.Close(s)
	return d.readTimestampFileIn(ctx, s, ".", e)
}

func (d *Dataset) readTimestampFileIn(
	ctx context.Context,
	st store.Store,
	dir string,
	e *episode,
) error {
	for _, base := range []string{"timestamps.txt", "times.txt"} {
		name := path.Join(dir, base)
		b, err := store.ReadFile(ctx, st, name, maxSide)
		if errors.Is(err, robocache.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := robocache.At(func() error {
			timestamps, err := d.parseTimestamps(string(b), name)
			if err != nil {
				return err
			}
			return d.assignTimestamps(e, timestamps, name)
		}(), robocache.Where{"file": name}); err != nil {
			return err
		}
		return nil
	}
	return nil
}

// assignTimestamps gives each scan the time of its line. As many times as scans go in order. A
// blank line is a lost scan: it keeps its position, and its file, if any, is left out. Any other
// combination is malformed, because the scan of a line is unknown. A list without times is ignored.
func (d *Dataset) assignTimestamps(e *episode, lines []timeLine, name string) error {
	times := slices.DeleteFunc(slices.Clone(lines), func(l timeLine) bool { return l.blank })
	if len(times) == 0 {
		d.recordUnusedClock(e, name, fmt.Sprintf("has 0 values for %d scans", len(e.scans)))
		return nil
	}
	trimmed := lines[:times[len(times)-1].line] // without blank lines at the end
	scans, n := e.scans, len(e.scans)
	switch {
	case len(times) == n && (len(trimmed) == n || numbersFit(scans, times)):
	case len(lines) == n || len(trimmed) == n: // one file per line
		scans = nil
		for i, l := range lines[:n] {
			if !l.blank {
				scans = append(scans, e.scans[i])
			}
		}
		d.About.Findings = append(d.About.Findings, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "short-timestamps",
			Where:    robocache.Where{"file": name},
			Count:    int64(n - len(scans)),
			Message: fmt.Sprintf(
				"%d timestamps for %d scans: the %d scans of blank lines are left out",
				len(times),
				n,
				n-len(scans),
			),
			Hint: timestampsHint(),
		})
	default:
		err := malformed("%d timestamps in %d lines for %d scans, and nothing says which belong "+
			"together",
			len(times), len(trimmed), n).(*robocache.Error)
		err.Hint = timestampsHint()
		return err
	}
	out := make([]int64, len(scans))
	for i, l := range times {
		if out[i] = l.time; i > 0 && out[i] < out[i-1] {
			return robocache.At(
				malformed("the timestamp is before that of the scan before"),
				robocache.Where{"line": l.line},
			)
		}
	}
	if len(out) > 1 && out[0] == out[len(out)-1] { // the times are ascending
		d.recordUnusedClock(e, name, fmt.Sprintf("has one time in all %d lines", len(out)))
		return nil
	}
	e.scans, e.timestamps = scans, out
	return nil
}

// recordUnusedClock records a list of timestamps that is not the clock of the scans of an episode.
func (d *Dataset) recordUnusedClock(e *episode, name, reason string) {
	where := robocache.Where{}
	for i := range d.episodes {
		if e == &d.episodes[i] {
			where["episode"] = i
		}
	}
	d.About.AddUnusedClock(robocache.UnusedClock{
		Stream: name, Where: where, Reason: reason,
		Advice: "Write " + name + " again with an ascending time for each scan",
	})
}

func timestampsHint() string {
	return "fetch the timestamps and the scans again; or give all scans one " +
		"rate: " + robocache.Option(
		"rows_hz",
		10,
	)
}

// numbersFit reports whether the numbers missing among the scans are those of the blank lines.
func numbersFit(scans []scan, times []timeLine) bool {
	for i, s := range scans {
		if s.number-scans[0].number != int64(times[i].line-times[0].line) {
			return false
		}
	}
	return true
}

// timeLine is a line of a list of timestamps, counted from 1.
type timeLine struct {
	line  int
	blank bool
	time  int64 // nanoseconds
}

// parseTimestamps parses one timestamp per line: a number, or a date and time with nanoseconds as
// in KITTI's raw recordings. The unit of numbers is that of the option, or is inferred from their
// magnitude, with seconds as the default. Blank lines are kept.
func (d *Dataset) parseTimestamps(s, name string) (out []timeLine, err error) {
	line := 0
	var numbers []float64
	var texts []string
	var at []int // positions of the numbers in out
	for text := range strings.Lines(s) {
		line++
		text = strings.TrimSpace(text)
		if text == "" {
			out = append(out, timeLine{line: line, blank: true})
			continue
		}
		// with any number of decimals
		if t, err := time.ParseInLocation("2006-01-02 15:04:05", text, time.UTC); err == nil {
			if t.Year() < 1700 || t.Year() > 2250 {
				return out, robocache.At(
					malformed("the year %d", t.Year()),
					robocache.Where{"line": line},
				)
			}
			out = append(out, timeLine{line: line, time: t.UnixNano()})
			continue
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return out, badTime(line, text)
		}
		numbers, texts, at = append(numbers, f), append(texts, text), append(at, len(out))
		out = append(out, timeLine{line: line})
	}
	timeUnit, err := d.timeUnit(numbers, name)
	if err != nil {
		return out, err
	}
	unit := robocache.TimeUnits[timeUnit]
	for i, text := range texts {
		t, ok := toNanoseconds(text, numbers[i], unit)
		if !ok {
			return out, badTime(out[at[i]].line, text)
		}
		out[at[i]].time = t
	}
	return out, nil
}

func badTime(line int, text string) error {
	return robocache.Malformed("clouds timestamps", robocache.Where{"line": line}, "").
		Expected("seconds, or a date and time", strconv.Quote(text[:min(len(text), 80)])).
		WithHint(
			"Pass %s, or us or ns, if they are in another unit",
			robocache.Option("options", "timestamp_unit", "ms"),
		)
}

// maxExactTime is the length of the longest number that is converted without a float.
const maxExactTime = 64

// toNanoseconds converts a number of a list. A plain decimal is not converted to a float, because
// floats of times since 1970 have steps of 0.2 µs.
func toNanoseconds(text string, value float64, unit int64) (ns int64, ok bool) {
	if len(text) <= maxExactTime && !strings.ContainsAny(text, "eEpPxX_/") {
		if r, ok := new(big.Rat).SetString(text); ok {
			r.Mul(r, new(big.Rat).SetInt64(unit))
			whole, part := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
			if part.Lsh(part, 1).Cmp(r.Denom()) >= 0 {
				whole.Add(whole, big.NewInt(1))
			}
			return whole.Int64(), whole.IsInt64()
		}
	}
	whole, rest := math.Modf(value)
	if math.Abs(whole) >= float64(math.MaxInt64/unit-1) {
		return 0, false
	}
	return int64(whole)*unit + int64(math.RoundToEven(rest*float64(unit))), true
}

// timeUnit returns the unit of the numbers of a list.
func (d *Dataset) timeUnit(numbers []float64, name string) (string, error) {
	if d.unit != "" || len(numbers) == 0 {
		return cmp.Or(d.unit, "s"), nil
	}
	g, err := robocache.InferTimeUnit(numbers, "s", d.src.hz)
	if err != nil {
		return "", robocache.At(err, robocache.Where{"file": name})
	}
	if f := robocache.UnitFinding(g, nil, "s", robocache.Where{"file": name}); f != nil {
		d.About.Findings = append(d.About.Findings, *f)
	}
	return cmp.Or(g.Unit, "s"), nil
}
