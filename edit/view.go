package edit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// planDataset presents a plan as a dataset. The caller keeps ownership of its sources.
type planDataset struct {
	plan *Plan
	srcs []robocache.Dataset
	info robocache.Info

	capabilities robocache.Capabilities

	keyIndexes   map[string]int          // index in plan.Keys
	library      *video.Library          // set if there are several sources
	taskNumbers  map[string]int64        // by text; nil until numberTasks is called
	addedColumns map[string]*addedColumn // by key

	// sideRates maps streams with samples under recordings/ to their nominal rates.
	sideRates         map[string]float64
	sideProblem       string   // why these samples are left out; "" if they are kept
	resultURI         string   // URI of the result
	writtenRecordings []string // recordings that were written to resultURI
	replacedURI       string   // dataset that the result replaces; "" if none
	// isRecordings is set if the sources are datasets of recordings. A row of a recording shows the
	// last sample of a stream up to its time. A cut therefore keeps the last sample before its
	// first row (see sourceSpan).
	isRecordings bool

	recountFrames bool // compute frame statistics even if the sources have them

	mu         sync.Mutex
	spans      map[episodeClock][2]int              // results of sourceSpan
	frameStats map[string][]*robocache.FeatureStats // of each source camera, by "0/key"
}

// episodeClock identifies a clock of an episode of the result.
type episodeClock struct {
	episode int
	name    string
}

// newPlanDataset returns a plan as a dataset over its sources.
func newPlanDataset(ctx context.Context, p *Plan, srcs []robocache.Dataset) (*planDataset, error) {
	v := &planDataset{
		plan:         p,
		srcs:         srcs,
		keyIndexes:   map[string]int{},
		addedColumns: map[string]*addedColumn{},
		spans:        map[episodeClock][2]int{},
		frameStats:   map[string][]*robocache.FeatureStats{},
	}
	v.setCapabilities()
	base := srcs[0].Info()
	v.info = robocache.Info{
		URI:      base.URI,
		Format:   base.Format,
		Version:  base.Version,
		Robot:    base.Robot,
		FPS:      p.FPS,
		Clock:    base.Clock,
		Episodes: len(p.Episodes),
	}
	v.info.NumberEpisodes(p.episodeNumbers(srcs))
	for _, ds := range srcs {
		v.info.Findings = append(v.info.Findings, ds.Info().Findings...)
	}
	for _, e := range p.Episodes {
		v.info.Frames += int64(e.To - e.From)
	}
	for i, k := range p.Keys {
		v.keyIndexes[k.Key] = i
		feature, err := v.describeFeature(ctx, &k)
		if err != nil {
			return nil, err
		}
		v.info.Features = append(v.info.Features, feature)
	}
	if len(srcs) > 1 {
		// Sources may have video files of the same path, so the library prefixes the paths.
		v.library = video.NewLibrary(v.openVideo, 0)
		return v, nil
	}
	// The bookkeeping columns of one source are kept, because a trim changes their values (Gather).
	// For a merge, the writer computes them.
	for _, f := range base.Features {
		if f.Default {
			v.info.Features = append(v.info.Features, f)
		}
	}
	v.setSplits(base)
	return v, nil
}

// describeFeature returns the feature of a key, taken from the first source that has it. The
// feature is masked if another source lacks it or masks it.
func (v *planDataset) describeFeature(
	ctx context.Context,
	k *Key,
) (f robocache.Feature, err error) {
	if k.Added != nil {
		c, err := k.Added.readColumn(ctx)
		if err != nil {
			return f, err
		}
		v.addedColumns[k.Key] = c
		return robocache.Feature{
			Key:   k.Key,
			Kind:  c.featureKind(),
			DType: c.dtype,
			Shape: c.shape,
		}, nil
	}
	if isLanguageColumn(k.Key) && strings.Join(k.From, "") == "" {
		return robocache.Feature{
			Key: k.Key, Kind: robocache.KindEvent, DType: robocache.JSON, Shape: []int{1},
		}, nil
	}
	found := false
	for i, name := range k.From {
		src := v.srcs[i].Info().Feature(name)
		switch {
		case name == "":
			f.Masked = f.Masked || !k.Ones
		case src == nil:
			return f, misuse(
				robocache.Where{"dataset": v.srcs[i].Info().URI, "stream": name},
				"the source has no such feature",
				robocache.Nearest(name, v.srcs[i].Info().Keys()),
			)
		case !found:
			masked := f.Masked
			f = *src
			found = true
			f.Masked = f.Masked || masked
		default:
			f.Masked = f.Masked || src.Masked
		}
	}
	f.Key = k.Key
	for _, order := range k.Order {
		for i := range order {
			if len(order) != f.Elements() || !slices.Contains(order, i) {
				return f, misuse(
					robocache.Where{"stream": k.Key},
					fmt.Sprintf("%v is no order of its %d channels", order, f.Elements()),
					"plan again",
				)
			}
		}
	}
	return f, nil
}

// setSplits sets the splits of the result. A part of a split becomes one split. Otherwise the
// splits of the only source are kept if their episodes are still contiguous.
func (v *planDataset) setSplits(base *robocache.Info) {
	episodes := make([]int, len(v.plan.Episodes))
	for i, e := range v.plan.Episodes {
		episodes[i] = e.Episode
	}
	ranges, lost := base.SplitsOf(episodes)
	if v.info.Splits = ranges; v.plan.Part != "" {
		v.info.Splits = map[string]string{v.plan.Part: fmt.Sprintf("0:%d", len(episodes))}
	}
	v.info.Findings = append(
		v.info.Findings,
		robocache.LostSplits(lost, "their episodes are no longer contiguous")...)
}

func (v *planDataset) Info() *robocache.Info { return &v.info }

// setCapabilities sets the capabilities that the result computes from its sources. A source's video
// files, clocks, recordings and checks do not apply, because they have other rows.
func (v *planDataset) setCapabilities() {
	c := &v.capabilities
	if len(v.srcs) == 1 {
		*c = *v.srcs[0].Capabilities()
	}
	c.GatherRagged, c.Valid, c.Rows, c.Lacks = v.GatherRagged, v.Valid, v.Rows, v.Lacks
	c.Origin, c.SideStreams, c.Noticed = v.Origin, v.SideStreams, v.Noticed
	c.LeaseFrames, c.VideoStart, c.Recording, c.Diagnose = nil, nil, nil, nil
	c.Clocks, c.TimesBy, c.Message = nil, nil, nil
}

// Capabilities returns the capabilities that the result computes from its sources.
func (v *planDataset) Capabilities() *robocache.Capabilities { return &v.capabilities }

// Noticed returns the findings of the sources while they were read.
func (v *planDataset) Noticed() (found []robocache.Finding) {
	for _, ds := range v.srcs {
		if noticed := ds.Capabilities().Noticed; noticed != nil {
			found = append(found, noticed()...)
		}
	}
	return found
}

// Unwrap returns the source if there is only one: its files are the result's.
func (v *planDataset) Unwrap() robocache.Dataset {
	if len(v.srcs) == 1 {
		return v.srcs[0]
	}
	return noSource{}
}

// noSource ends the search of robocache.As.
type noSource struct{ robocache.Dataset }

// Video returns the library with the files of all sources. With several sources, each path begins
// with the number of its source.
func (v *planDataset) Video() *video.Library {
	if v.library != nil {
		return v.library
	}
	return video.LibraryOf(v.srcs[0])
}

// heldFile is a video file of a source. Close releases it.
type heldFile struct {
	robocache.Ranged
	file *video.File
}

func (h heldFile) Close() error { h.file.Release(); return nil }
func (h heldFile) Remote() bool { return h.file.Remote() }

func (v *planDataset) openVideo(ctx context.Context, path string) (robocache.Ranged, error) {
	number, name, _ := strings.Cut(path, "/")
	i, err := strconv.Atoi(number)
	if err != nil || i >= len(v.srcs) {
		return nil, misuse(robocache.Where{"file": path}, "no video file of any source", "")
	}
	f, err := video.LibraryOf(v.srcs[i]).Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return heldFile{f.Ranged, f}, nil
}

func (v *planDataset) Len(e int) int {
	if e < 0 || e >= len(v.plan.Episodes) {
		return 0
	}
	return v.plan.Episodes[e].To - v.plan.Episodes[e].From
}

// Lacks reports whether the source of an episode has the stream but the episode does not. If the
// source does not have the stream, Lacks returns false, and the rows are masked instead.
func (v *planDataset) Lacks(e int, key string) bool {
	p, err := v.planEpisode(e)
	if err != nil {
		return false
	}
	name := v.sourceName(key, p.Source)
	if i, ok := v.keyIndexes[key]; ok && v.plan.Keys[i].Added != nil {
		return false
	}
	return name != "" && robocache.Lacks(v.srcs[p.Source], p.Episode, name)
}

// planEpisode returns the planned episode at position e, or an error if there is none.
func (v *planDataset) planEpisode(e int) (*Episode, error) {
	if e < 0 || e >= len(v.plan.Episodes) {
		return nil, robocache.NotFound(
			"edit",
			robocache.Where{"position": e},
			"there is no such episode",
		).Expected("0 to "+strconv.Itoa(len(v.plan.Episodes)-1), "")
	}
	return &v.plan.Episodes[e], nil
}

func (v *planDataset) Episode(ctx context.Context, e int) (ep robocache.Episode, err error) {
	p, err := v.planEpisode(e)
	if err != nil {
		return ep, err
	}
	if ep, err = v.srcs[p.Source].Episode(ctx, p.Episode); err != nil {
		return ep, err
	}
	ep.Position = e
	ep.Index = v.info.EpisodeIndex(e)
	ep.Length = p.To - p.From
	if ep.Tasks, err = v.episodeTasks(ctx, e, ep.Tasks); err != nil {
		return ep, err
	}
	return ep, nil
}

// Origin returns the origin of the source episode.
func (v *planDataset) Origin(ctx context.Context, e int) (_ *robocache.Origin, err error) {
	p, err := v.planEpisode(e)
	if err != nil {
		return nil, err
	}
	return robocache.OriginOf(ctx, v.srcs[p.Source], p.Episode)
}

// hasAllRows reports whether the plan keeps all rows of the source episode.
func (v *planDataset) hasAllRows(p *Episode) bool {
	return p.From == 0 && p.To == v.srcs[p.Source].Len(p.Episode)
}

// sourceSpan returns the rows [from, to) of a source's stream that belong to episode e. For a
// stream with its own clock, these are the rows from the time of the episode's first row to the
// time of the row after its last one.
func (v *planDataset) sourceSpan(ctx context.Context, e int, key string) (from, to int, err error) {
	planned, err := v.planEpisode(e)
	if err != nil {
		return from, to, err
	}
	src := v.srcs[planned.Source]
	feature := src.Info().Feature(key)
	if feature == nil || feature.Clock == "" {
		return planned.From, planned.To, nil
	}
	id := episodeClock{e, feature.Clock}
	v.mu.Lock()
	span, ok := v.spans[id]
	v.mu.Unlock()
	if ok {
		return span[0], span[1], nil
	}
	streamRows, err := robocache.RowsIn(ctx, src, planned.Episode, feature)
	if err != nil {
		return from, to, err
	}
	from, to = 0, streamRows
	if !v.hasAllRows(planned) {
		rows, err := src.Times(ctx, planned.Episode, "")
		if err != nil {
			return from, to, err
		}
		own, err := src.Times(ctx, planned.Episode, key)
		if err != nil {
			return from, to, err
		}
		if planned.From > 0 {
			var isExact bool
			from, isExact = slices.BinarySearch(own, rows[planned.From])
			if v.isRecordings && !isExact && from > 0 {
				from--
			}
		}
		if planned.To < len(rows) {
			to, _ = slices.BinarySearch(own, rows[planned.To])
		}
		to = max(from, to)
	}
	v.mu.Lock()
	v.spans[id] = [2]int{from, to}
	v.mu.Unlock()
	return from, to, nil
}

// Rows returns the number of rows of a stream with its own clock.
func (v *planDataset) Rows(ctx context.Context, e int, key string) (n int, err error) {
	entry, err := v.planEpisode(e)
	if err != nil {
		return n, err
	}
	from, to, err := v.sourceSpan(ctx, e, v.sourceName(key, entry.Source))
	if err != nil {
		return n, err
	}
	return to - from, nil
}

// sourceName returns the name of a key in a source.
func (v *planDataset) sourceName(key string, source int) string {
	i, ok := v.keyIndexes[key]
	if !ok || v.plan.Keys[i].Added != nil {
		return key
	}
	return v.plan.Keys[i].From[source]
}

func (v *planDataset) Times(ctx context.Context, e int, key string) (_ []int64, err error) {
	p, err := v.planEpisode(e)
	if err != nil {
		return nil, err
	}
	if key != "" {
		key = v.sourceName(key, p.Source)
	}
	times, err := v.srcs[p.Source].Times(ctx, p.Episode, key)
	if err != nil {
		return nil, err
	}
	from, to, err := v.sourceSpan(ctx, e, key)
	if err != nil {
		return nil, err
	}
	return times[from:to], nil
}

// eachSourceRun divides rows into runs of the same source and calls fn for each run. name is the
// key in that source, or "" if the source lacks it. fn receives the corresponding rows of the
// source and at, the index of the run's first row in rows of the caller. The slice is valid until
// fn returns.
func (v *planDataset) eachSourceRun(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	fn func(source int, name string, rows []robocache.Row, at int) error,
) error {
	run := make([]robocache.Row, 0, len(rows))
	runStart := 0
	source := -1
	name := ""
	episode := -1
	from := 0
	endRun := func(end int) error {
		if len(run) > 0 {
			if err := fn(source, name, run, runStart); err != nil {
				return err
			}
		}
		runStart = end
		run = run[:0]
		return nil
	}
	for i, r := range rows {
		if r.Episode != episode {
			p, err := v.planEpisode(r.Episode)
			if err != nil {
				return err
			}
			if p.Source != source {
				if err := endRun(i); err != nil {
					return err
				}
				source = p.Source
				name = v.sourceName(key, p.Source)
			}
			episode = r.Episode
			if from, _, err = v.sourceSpan(ctx, r.Episode, name); err != nil {
				return err
			}
		}
		run = append(
			run,
			robocache.Row{Episode: v.plan.Episodes[r.Episode].Episode, Index: from + r.Index},
		)
	}
	return endRun(len(rows))
}

func (v *planDataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	readRun := func(source int, name string, rows []robocache.Row, at int) error {
		part := out[at : at+len(rows)]
		if name == "" {
			for i := range part {
				part[i] = robocache.FrameRef{Missing: true}
			}
			return nil
		}
		if err := v.srcs[source].Frames(ctx, name, rows, part); err != nil {
			return err
		}
		if v.library == nil {
			return nil
		}
		// A merged library names files SOURCE/PATH.
		path, prefixed := "", ""
		for i := range part {
			if part[i].Path == "" {
				continue
			}
			if part[i].Path != path {
				path = part[i].Path
				prefixed = strconv.Itoa(source) + "/" + path
			}
			part[i].Path = prefixed
		}
		return nil
	}
	return v.eachSourceRun(ctx, key, rows, readRun)
}

// KnownFrames returns the source's frame statistics of an episode. It returns nil if the source has
// none, rows were cut off, or the statistics must be computed again.
func (v *planDataset) KnownFrames(
	ctx context.Context,
	key string,
	e int,
) (_ *robocache.FeatureStats, err error) {
	p, err := v.planEpisode(e)
	if err != nil {
		return nil, err
	}
	src, ok := v.srcs[p.Source].(interface {
		FrameStats(ctx context.Context, key string) ([]*robocache.FeatureStats, error)
	})
	if !ok || v.recountFrames || !v.hasAllRows(p) {
		return nil, nil
	}
	id := strconv.Itoa(p.Source) + "/" + v.sourceName(key, p.Source)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.frameStats[id]; !ok {
		known, err := src.FrameStats(ctx, v.sourceName(key, p.Source))
		if err != nil {
			return nil, err
		}
		v.frameStats[id] = known
	}
	return v.frameStats[id][p.Episode], nil
}

// Stats returns nil, because statistics are computed when the result is written.
func (v *planDataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

func (v *planDataset) Close() error {
	if v.library != nil {
		return v.library.Close()
	}
	return nil
}
