package calvin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/store"
)

const maxIndex = 64 << 20 // of a file of runs

// episode is a run of frames, or an annotated window of one.
type episode struct {
	split       string
	first, last int64 // numbers of its frames, both inside
	note        int   // the annotation that it is, -1 for a run
	run         int32 // the run that it is, or lies in
}

func (e episode) rows() int64 { return e.last - e.first + 1 }

// pattern is how a split's frames are named: episode_0000000.npz.
type pattern struct {
	prefix string
	digits int
}

func (p pattern) name(n int64) string {
	digits := strconv.FormatInt(n, 10)
	return p.prefix + strings.Repeat("0", max(p.digits-len(digits), 0)) + digits + ".npz"
}

// maxRun bounds a run: its number of rows must fit what counts rows.
const maxRun = 1 << 31

// readRuns reads the runs of each split that is there.
func (d *Dataset) readRuns(ctx context.Context) error {
	for _, split := range splits {
		if split != "" && len(d.eps) > 0 && d.eps[0].split == "" {
			break // opened inside a split
		}
		from := len(d.eps)
		b, err := store.ReadFile(ctx, d.Bytes, at(split, idsName), maxIndex)
		if errors.Is(err, robocache.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		var runs [][2]int64
		err = func() error {
			runsValue, err := parseRuns(b)
			if err != nil {
				return err
			}
			runs = runsValue
			return nil
		}()
		if err := robocache.At(err, robocache.Where{"file": at(split, idsName)}); err != nil {
			return err
		}
		for _, r := range runs {
			d.eps = append(d.eps, episode{split: split, first: r[0], last: r[1], note: -1})
		}
		d.compareRuns(split, d.eps[from:])
	}
	if len(d.eps) == 0 {
		if err := d.listRuns(ctx); err != nil {
			return err
		}
	}
	for i := range d.eps {
		d.eps[i].run = int32(i)
	}
	if len(d.eps) == 0 {
		return robocache.NotFound("calvin open", nil, "no %s and no frames here, in training/ or in validation/", idsName).
			WithHint("name the folder that holds training/ and validation/; frames are read with their %s", idsName)
	}
	return nil
}

// pairs gives the rows of an array of pairs of integers.
func pairs(a *npy.Array) (out [][2]int64, ok bool) {
	v, ok := a.Int64s()
	if !ok || len(a.Shape) != 2 || a.Shape[1] != 2 {
		return nil, false
	}
	for i := 0; i+1 < len(v); i += 2 {
		out = append(out, [2]int64{v[i], v[i+1]})
	}
	return out, true
}

func parseRuns(b []byte) ([][2]int64, error) {
	a, err := npy.Decode(b)
	if err != nil {
		return nil, err
	}
	runs, ok := pairs(a)
	if !ok {
		return nil, robocache.Malformed("calvin runs", nil, "").
			Expected("integers of shape [runs, 2]", fmt.Sprint(a.Type, a.Shape))
	}
	for i, r := range runs {
		if r[0] < 0 || r[1] < r[0] || r[1]-r[0] >= maxRun {
			return nil, robocache.Malformed(
				"calvin runs",
				robocache.Where{"row": i},
				"a run of frames %d to %d",
				r[0],
				r[1],
			)
		}
	}
	return runs, nil
}

// compareRuns reports frames that belong to two runs.
func (d *Dataset) compareRuns(split string, eps []episode) {
	sorted := slices.Clone(eps)
	slices.SortFunc(sorted, func(a, b episode) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].first <= sorted[i-1].last {
			d.find(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "runs-overlap",
				Where:    robocache.Where{"file": at(split, idsName)},
				Message: fmt.Sprintf(
					"frames %d to %d belong to two runs",
					sorted[i].first,
					min(sorted[i-1].last, sorted[i].last),
				),
			})
		}
	}
}

// listRuns finds runs by the frames' names where no file says them.
func (d *Dataset) listRuns(ctx context.Context) error {
	list, links, err := store.Files(
		ctx,
		d.Bytes,
		"",
		func(name string) bool { _, ok := number(path.Base(name)); return ok },
	)
	if errors.Is(err, robocache.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	numbers := map[string][]int64{}
	for _, e := range list {
		n, _ := number(path.Base(e.Name))
		split := strings.TrimSuffix(path.Dir(e.Name), ".")
		numbers[split] = append(numbers[split], n)
	}
	d.About.Findings = append(d.About.Findings, store.Findings(links, "link-not-followed")...)
	for _, split := range splits {
		v := numbers[split]
		slices.Sort(v)
		for i := 0; i < len(v); {
			k := i + 1
			for k < len(v) && v[k] == v[k-1]+1 {
				k++
			}
			d.eps = append(d.eps, episode{split: split, first: v[i], last: v[k-1], note: -1})
			i = k
		}
		if len(v) > 0 {
			d.find(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "missing-file",
				Where:    robocache.Where{"file": at(split, idsName)},
				Message:  "the file is missing: each stretch of frame numbers without a hole is taken as a run, which may join recordings that follow each other",
				Hint: "fetch " + at(
					split,
					idsName,
				) + ", which says where the runs begin and end",
			})
		}
	}
	return nil
}

// number reads the number of a frame out of its file's name.
func number(name string) (int64, bool) {
	s, ok := strings.CutPrefix(name, "episode_")
	if s, ok2 := strings.CutSuffix(s, ".npz"); ok && ok2 {
		n, err := strconv.ParseInt(s, 10, 62)
		return n, err == nil && n >= 0
	}
	return 0, false
}

// maxPatternRuns is the number of runs of a split whose first frame is looked for.
const maxPatternRuns = 16

// findPatterns finds how the frames of each split are named, by the first frame that is present.
func (d *Dataset) findPatterns(ctx context.Context) error {
	missing := map[string]error{}
	tried := map[string]int{}
	for _, e := range d.eps {
		if _, ok := d.patterns[e.split]; ok || tried[e.split] >= maxPatternRuns {
			continue
		}
		tried[e.split]++
		p, err := d.findPattern(ctx, e)
		switch {
		case err == nil:
			d.patterns[e.split] = p
		case !errors.Is(err, robocache.ErrNotFound):
			return err
		default:
			missing[e.split] = cmp.Or(missing[e.split], err)
		}
	}
	for split, err := range missing {
		if _, ok := d.patterns[split]; !ok {
			return err
		}
	}
	return nil
}

// findPattern finds how the first frame of a run is named. The error is NotFound if there is none.
func (d *Dataset) findPattern(ctx context.Context, e episode) (p pattern, missing error) {
	for _, digits := range []int{7, 6, 8, 5, 9, 4, 10, 3, 2, 1} {
		p := pattern{at(e.split, "episode_"), digits}
		_, err := d.Bytes.Stat(ctx, p.name(e.first))
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, robocache.ErrNotFound) {
			return pattern{}, err
		}
		missing = cmp.Or(missing, err)
	}
	return pattern{}, missing
}

// number counts rows, once the episodes stand.
func (d *Dataset) number() {
	d.starts = make([]int64, len(d.eps)+1)
	counts := map[string]int{}
	for i, e := range d.eps {
		d.starts[i+1] = d.starts[i] + e.rows()
		counts[e.split]++
	}
	d.About.Episodes, d.About.Frames = len(d.eps), d.starts[len(d.eps)]
	from := 0
	for _, split := range splits {
		if n := counts[split]; n > 0 && split != "" {
			d.About.Splits[split] = fmt.Sprintf("%d:%d", from, from+n)
			from += n
		}
	}
}

// Len is the number of rows of an episode; 0 for an episode that is not there.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= len(d.eps) {
		return 0
	}
	return int(d.eps[episode].rows())
}

func (d *Dataset) checkRow(r robocache.Row) error {
	if err := op.Episode(len(d.eps), r.Episode); err != nil {
		return err
	}
	return op.Row(d.About, d.Len(r.Episode), r)
}

// Episode gives the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (robocache.Episode, error) {
	if err := op.Episode(len(d.eps), episode); err != nil {
		return robocache.Episode{}, err
	}
	out := robocache.Episode{Position: episode, Index: int64(episode), Length: d.Len(episode)}
	if d.lang != nil {
		out.Tasks = d.lang.tasks(d.eps[episode])
	}
	return out, ctx.Err()
}

// Times gives the timestamps of an episode's rows: all streams share them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	if err := op.Episode(len(d.eps), episode); err != nil {
		return nil, err
	}
	if key != "" && d.About.Feature(key) == nil {
		return nil, op.NoStream(key)
	}
	n := d.Len(episode)
	if n > 1<<24 {
		// The length is a claim: the last frame must be there before memory is taken for it.
		if _, err := d.Bytes.Stat(ctx, d.name(d.eps[episode], n-1)); err != nil {
			return nil, err
		}
	}
	return reader.Grid(d.rate, n), ctx.Err()
}

// name is the file of an episode's row.
func (d *Dataset) name(e episode, row int) string {
	return d.patterns[e.split].name(e.first + int64(row))
}
