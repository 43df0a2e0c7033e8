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

const maxIndex = 64 << 20 // bytes of a file of runs

// episode is a run of frames, or an annotated window of a run.
type episode struct {
	split       string
	first, last int64 // numbers of its frames, both inclusive
	note        int   // index of the annotation; -1 for a run
	run         int32 // run that contains the episode
}

func (e episode) rows() int64 { return e.last - e.first + 1 }

// pattern describes the names of a split's frames, such as episode_0000000.npz.
type pattern struct {
	prefix string
	digits int
}

func (p pattern) fileName(n int64) string {
	digits := strconv.FormatInt(n, 10)
	return p.prefix + strings.Repeat("0", max(p.digits-len(digits), 0)) + digits + ".npz"
}

// maxRun limits the length of a run to the range of row numbers.
const maxRun = 1 << 31

// readRuns reads the runs of each existing split.
func (d *Dataset) readRuns(ctx context.Context) error {
	for _, split := range splits {
		if split != "" && len(d.episodes) > 0 && d.episodes[0].split == "" {
			break // uri is a split itself
		}
		from := len(d.episodes)
		b, err := store.ReadFile(ctx, d.Bytes, inSplit(split, idsName), maxIndex)
		if errors.Is(err, robocache.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		runs, err := parseRuns(b)
		if err := robocache.At(err, robocache.Where{"file": inSplit(split, idsName)}); err != nil {
			return err
		}
		for _, r := range runs {
			d.episodes = append(
				d.episodes,
				episode{split: split, first: r[0], last: r[1], note: -1},
			)
		}
		d.compareRuns(split, d.episodes[from:])
	}
	if len(d.episodes) == 0 {
		if err := d.listRuns(ctx); err != nil {
			return err
		}
	}
	for i := range d.episodes {
		d.episodes[i].run = int32(i)
	}
	if len(d.episodes) == 0 {
		return robocache.NotFound(
			"calvin open",
			nil,
			"no %s and no frames here, in training/ or in validation/",
			idsName,
		).
			WithHint(
				"name the folder that holds training/ and validation/; frames are read with "+
					"their %s",
				idsName,
			)
	}
	return nil
}

// integerPairs returns the rows of an array of integer pairs.
func integerPairs(a *npy.Array) (out [][2]int64, ok bool) {
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
	runs, ok := integerPairs(a)
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
			d.addFinding(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "runs-overlap",
				Where:    robocache.Where{"file": inSplit(split, idsName)},
				Message: fmt.Sprintf(
					"frames %d to %d belong to two runs",
					sorted[i].first,
					min(sorted[i-1].last, sorted[i].last),
				),
			})
		}
	}
}

// listRuns determines the runs from the names of the frames, if the file of runs is missing.
func (d *Dataset) listRuns(ctx context.Context) error {
	list, links, err := store.Files(
		ctx,
		d.Bytes,
		"",
		func(name string) bool { _, ok := frameNumber(path.Base(name)); return ok },
	)
	if errors.Is(err, robocache.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	numbers := map[string][]int64{}
	for _, e := range list {
		n, _ := frameNumber(path.Base(e.Name))
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
			d.episodes = append(
				d.episodes,
				episode{split: split, first: v[i], last: v[k-1], note: -1},
			)
			i = k
		}
		if len(v) > 0 {
			d.addFinding(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "missing-file",
				Where:    robocache.Where{"file": inSplit(split, idsName)},
				Message: "the file is missing: each stretch of frame numbers without a hole is " +
					"taken as a run, which may join recordings that follow each other",
				Hint: "fetch " + inSplit(
					split,
					idsName,
				) + ", which says where the runs begin and end",
			})
		}
	}
	return nil
}

// frameNumber parses the number of a frame from its file name.
func frameNumber(name string) (int64, bool) {
	s, ok := strings.CutPrefix(name, "episode_")
	if s, ok2 := strings.CutSuffix(s, ".npz"); ok && ok2 {
		n, err := strconv.ParseInt(s, 10, 62)
		return n, err == nil && n >= 0
	}
	return 0, false
}

// maxPatternRuns is the number of runs of a split that are tried to find the naming pattern.
const maxPatternRuns = 16

// findPatterns determines the naming pattern of each split from the first frame that is present.
func (d *Dataset) findPatterns(ctx context.Context) error {
	missing := map[string]error{}
	tried := map[string]int{}
	for _, e := range d.episodes {
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

// findPattern determines the naming pattern from the first frame of a run. The error is NotFound if
// that frame is missing.
func (d *Dataset) findPattern(ctx context.Context, e episode) (p pattern, missing error) {
	for _, digits := range []int{7, 6, 8, 5, 9, 4, 10, 3, 2, 1} {
		p := pattern{inSplit(e.split, "episode_"), digits}
		_, err := d.Bytes.Stat(ctx, p.fileName(e.first))
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

// countRows computes the row counts and the splits after the episodes are known.
func (d *Dataset) countRows() {
	d.starts = make([]int64, len(d.episodes)+1)
	counts := map[string]int{}
	for i, e := range d.episodes {
		d.starts[i+1] = d.starts[i] + e.rows()
		counts[e.split]++
	}
	d.About.Episodes, d.About.Frames = len(d.episodes), d.starts[len(d.episodes)]
	from := 0
	for _, split := range splits {
		if n := counts[split]; n > 0 && split != "" {
			d.About.Splits[split] = fmt.Sprintf("%d:%d", from, from+n)
			from += n
		}
	}
}

// Len returns the number of rows of an episode. It is 0 if the episode does not exist.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= len(d.episodes) {
		return 0
	}
	return int(d.episodes[episode].rows())
}

func (d *Dataset) checkRow(r robocache.Row) error {
	if err := op.Episode(len(d.episodes), r.Episode); err != nil {
		return err
	}
	return op.Row(d.About, d.Len(r.Episode), r)
}

// Episode returns the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (robocache.Episode, error) {
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return robocache.Episode{}, err
	}
	out := robocache.Episode{Position: episode, Index: int64(episode), Length: d.Len(episode)}
	if d.language != nil {
		out.Tasks = d.language.taskTexts(d.episodes[episode])
	}
	return out, ctx.Err()
}

// Times returns the timestamps of an episode's rows. All streams share them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return nil, err
	}
	if key != "" && d.About.Feature(key) == nil {
		return nil, op.NoStream(key)
	}
	n := d.Len(episode)
	if n > 1<<24 {
		// The length is only declared. The last frame must exist before memory is allocated.
		if _, err := d.Bytes.Stat(ctx, d.frameName(d.episodes[episode], n-1)); err != nil {
			return nil, err
		}
	}
	return reader.Grid(d.rate, n), ctx.Err()
}

// frameName returns the file name of an episode's row.
func (d *Dataset) frameName(e episode, row int) string {
	return d.patterns[e.split].fileName(e.first + int64(row))
}
