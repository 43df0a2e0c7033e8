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

// view is a plan as a dataset. Its sources stay the caller's to close.
type view struct {
	plan *Plan
	srcs []robocache.Dataset
	info robocache.Info

	offered robocache.Capabilities

	keys  map[string]int // into plan.Keys
	lib   *video.Library // of several sources
	tasks map[string]int64
	added map[string]*column

	// streams with samples under recordings/, and their nominal rates
	side        map[string]float64
	sideProblem string   // why these samples are left out; "" = they are kept
	dst         string   // URI of the result
	written     []string // recordings that were written to dst
	replaces    string   // the dataset whose place the result takes; "" = none
	// the sources are recordings: their streams hold a sample ahead of the first row
	recordings bool

	recount bool // frames are counted anew, whatever the sources know of them

	mu     sync.Mutex
	spans  map[clock][2]int
	frames map[string][]*robocache.FeatureStats // of a source's camera: "0/key"
}

// clock is a clock of an episode of the result.
type clock struct {
	episode int
	name    string
}

func newView(ctx context.Context, p *Plan, srcs []robocache.Dataset) (*view, error) {
	v := &view{
		plan:   p,
		srcs:   srcs,
		keys:   map[string]int{},
		added:  map[string]*column{},
		spans:  map[clock][2]int{},
		frames: map[string][]*robocache.FeatureStats{},
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
	v.info.NumberEpisodes(p.numbers(srcs))
	for _, ds := range srcs {
		v.info.Findings = append(v.info.Findings, ds.Info().Findings...)
	}
	for _, e := range p.Episodes {
		v.info.Frames += int64(e.To - e.From)
	}
	for i, k := range p.Keys {
		v.keys[k.Key] = i
		feature, err := v.feature(ctx, &k)
		if err != nil {
			return nil, err
		}
		v.info.Features = append(v.info.Features, feature)
	}
	if len(srcs) == 1 {
		for _, f := range base.Features {
			if f.Default {
				v.info.Features = append(v.info.Features, f)
			}
		}
		v.splits(base)
		return v, nil
	}
	v.lib = video.NewLibrary(v.openVideo, 0)
	return v, nil
}

// feature is what the result says of a key: the first source's that has it, masked where another
// has not.
func (v *view) feature(ctx context.Context, k *Key) (f robocache.Feature, err error) {
	if k.Added != nil {
		c, err := k.Added.read(ctx)
		if err != nil {
			return f, err
		}
		v.added[k.Key] = c
		return robocache.Feature{Key: k.Key, Kind: c.kind(), DType: c.dtype, Shape: c.shape}, nil
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
			f, found = *src, true
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

// splits are those of one source, as far as their episodes still stand together.
func (v *view) splits(base *robocache.Info) {
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
		robocache.LostSplits(lost, "their episodes no longer stand together")...)
}

func (v *view) Info() *robocache.Info { return &v.info }

// setCapabilities sets the capabilities: those that the result computes from its sources. The video
// files, clocks, recordings and checks of a source have other rows.
func (v *view) setCapabilities() {
	c := &v.offered
	if len(v.srcs) == 1 {
		*c = *v.srcs[0].Capabilities()
	}
	c.GatherRagged, c.Valid, c.Rows, c.Lacks = v.GatherRagged, v.Valid, v.Rows, v.Lacks
	c.Origin, c.SideStreams, c.Noticed = v.Origin, v.SideStreams, v.Noticed
	c.LeaseFrames, c.VideoStart, c.Recording, c.Diagnose = nil, nil, nil, nil
	c.Clocks, c.TimesBy = nil, nil
}

// Capabilities returns those that the result computes from its sources.
func (v *view) Capabilities() *robocache.Capabilities { return &v.offered }

// Noticed returns what the sources found while they were read.
func (v *view) Noticed() (found []robocache.Finding) {
	for _, ds := range v.srcs {
		if noticed := ds.Capabilities().Noticed; noticed != nil {
			found = append(found, noticed()...)
		}
	}
	return found
}

// Unwrap is the source, where there is one: its files are the result's.
func (v *view) Unwrap() robocache.Dataset {
	if len(v.srcs) == 1 {
		return v.srcs[0]
	}
	return nothing{}
}

// nothing ends the way of robocache.As.
type nothing struct{ robocache.Dataset }

// Video is the files of all sources, each below its number.
func (v *view) Video() *video.Library {
	if v.lib != nil {
		return v.lib
	}
	return video.LibraryOf(v.srcs[0])
}

// heldFile is a video file of a source, held as long as it is open here.
type heldFile struct {
	robocache.Ranged
	file *video.File
}

func (h heldFile) Close() error { h.file.Release(); return nil }
func (h heldFile) Remote() bool { return h.file.Remote() }

func (v *view) openVideo(ctx context.Context, path string) (robocache.Ranged, error) {
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

func (v *view) Len(e int) int {
	if e < 0 || e >= len(v.plan.Episodes) {
		return 0
	}
	return v.plan.Episodes[e].To - v.plan.Episodes[e].From
}

// Lacks reports whether the episode's source has the stream and the episode itself does not. Where
// the source has no such stream, its rows are masked.
func (v *view) Lacks(e int, key string) bool {
	p, err := v.at(e)
	if err != nil {
		return false
	}
	name := v.name(key, p.Source)
	if i, ok := v.keys[key]; ok && v.plan.Keys[i].Added != nil {
		return false
	}
	return name != "" && robocache.Lacks(v.srcs[p.Source], p.Episode, name)
}

func (v *view) at(e int) (*Episode, error) {
	if e < 0 || e >= len(v.plan.Episodes) {
		return nil, robocache.NotFound("edit", robocache.Where{"position": e}, "there is no such episode").
			Expected("0 to "+strconv.Itoa(len(v.plan.Episodes)-1), "")
	}
	return &v.plan.Episodes[e], nil
}

func (v *view) Episode(ctx context.Context, e int) (ep robocache.Episode, err error) {
	p, err := v.at(e)
	if err != nil {
		return ep, err
	}
	if ep, err = v.srcs[p.Source].Episode(ctx, p.Episode); err != nil {
		return ep, err
	}
	ep.Position, ep.Index, ep.Length = e, v.info.EpisodeIndex(e), p.To-p.From
	if ep.Tasks, err = v.tasksOf(ctx, e, ep.Tasks); err != nil {
		return ep, err
	}
	return ep, nil
}

// Origin is the source's.
func (v *view) Origin(ctx context.Context, e int) (_ *robocache.Origin, err error) {
	p, err := v.at(e)
	if err != nil {
		return nil, err
	}
	return robocache.OriginOf(ctx, v.srcs[p.Source], p.Episode)
}

// whole says that all rows of the source's episode are there.
func (v *view) whole(p *Episode) bool {
	return p.From == 0 && p.To == v.srcs[p.Source].Len(p.Episode)
}

// span is where a stream's rows of an episode lie among the source's: on a clock of its own, those
// of the time that is kept.
func (v *view) span(ctx context.Context, e int, key string) (from, to int, err error) {
	p, err := v.at(e)
	if err != nil {
		return from, to, err
	}
	src := v.srcs[p.Source]
	f := src.Info().Feature(key)
	if f == nil || f.Clock == "" {
		return p.From, p.To, nil
	}
	id := clock{e, f.Clock}
	v.mu.Lock()
	at, ok := v.spans[id]
	v.mu.Unlock()
	if ok {
		return at[0], at[1], nil
	}
	n, err := robocache.RowsIn(ctx, src, p.Episode, f)
	if err != nil {
		return from, to, err
	}
	from, to = 0, n
	if !v.whole(p) {
		rows, err := src.Times(ctx, p.Episode, "")
		if err != nil {
			return from, to, err
		}
		own, err := src.Times(ctx, p.Episode, key)
		if err != nil {
			return from, to, err
		}
		if p.From > 0 {
			var exact bool
			if from, exact = slices.BinarySearch(
				own,
				rows[p.From],
			); v.recordings && !exact &&
				from > 0 {
				from-- // the first row holds this sample
			}
		}
		if p.To < len(rows) {
			to, _ = slices.BinarySearch(own, rows[p.To])
		}
		to = max(from, to)
	}
	v.mu.Lock()
	v.spans[id] = [2]int{from, to}
	v.mu.Unlock()
	return from, to, nil
}

// Rows is the number of rows of a stream on a clock of its own.
func (v *view) Rows(ctx context.Context, e int, key string) (n int, err error) {
	entry, err := v.at(e)
	if err != nil {
		return n, err
	}
	from, to, err := v.span(ctx, e, v.name(key, entry.Source))
	if err != nil {
		return n, err
	}
	return to - from, nil
}

// name is a key's in a source.
func (v *view) name(key string, source int) string {
	i, ok := v.keys[key]
	if !ok || v.plan.Keys[i].Added != nil {
		return key
	}
	return v.plan.Keys[i].From[source]
}

func (v *view) Times(ctx context.Context, e int, key string) (_ []int64, err error) {
	p, err := v.at(e)
	if err != nil {
		return nil, err
	}
	if key != "" {
		key = v.name(key, p.Source)
	}
	times, err := v.srcs[p.Source].Times(ctx, p.Episode, key)
	if err != nil {
		return nil, err
	}
	from, to, err := v.span(ctx, e, key)
	if err != nil {
		return nil, err
	}
	return times[from:to], nil
}

// runs calls fn with the rows of each source, by their names there, as they stand together: rows at
// ≤ i < at+n.
func (v *view) runs(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	fn func(source int, name string, rows []robocache.Row, at int) error,
) error {
	out := make([]robocache.Row, 0, len(rows))
	at, source, episode, from := 0, -1, -1, 0
	name := ""
	send := func(to int) error {
		if len(out) > 0 {
			if err := fn(source, name, out, at); err != nil {
				return err
			}
		}
		at, out = to, out[:0]
		return nil
	}
	for i, r := range rows {
		if r.Episode != episode {
			p, err := v.at(r.Episode)
			if err != nil {
				return err
			}
			if p.Source != source {
				if err := send(i); err != nil {
					return err
				}
				source, name = p.Source, v.name(key, p.Source)
			}
			episode = r.Episode
			if from, _, err = v.span(ctx, r.Episode, name); err != nil {
				return err
			}
		}
		out = append(
			out,
			robocache.Row{Episode: v.plan.Episodes[r.Episode].Episode, Index: from + r.Index},
		)
	}
	return send(len(rows))
}

func (v *view) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	if err := v.runs(
		ctx,
		key,
		rows,
		func(source int, name string, rows []robocache.Row, at int) error {
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
			if v.lib == nil {
				return nil
			}
			was, is := "", ""
			for i := range part {
				if part[i].Path == "" {
					continue
				}
				if part[i].Path != was {
					was, is = part[i].Path, strconv.Itoa(source)+"/"+part[i].Path
				}
				part[i].Path = is
			}
			return nil
		},
	); err != nil {
		return err
	}
	return nil
}

// KnownFrames gives what the source says of the frames of an episode, where they are all there as
// they were.
func (v *view) KnownFrames(
	ctx context.Context,
	key string,
	e int,
) (_ *robocache.FeatureStats, err error) {
	p, err := v.at(e)
	if err != nil {
		return nil, err
	}
	src, ok := v.srcs[p.Source].(interface {
		FrameStats(ctx context.Context, key string) ([]*robocache.FeatureStats, error)
	})
	if !ok || v.recount || !v.whole(p) {
		return nil, nil
	}
	id := strconv.Itoa(p.Source) + "/" + v.name(key, p.Source)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.frames[id]; !ok {
		known, err := src.FrameStats(ctx, v.name(key, p.Source))
		if err != nil {
			return nil, err
		}
		v.frames[id] = known
	}
	return v.frames[id][p.Episode], nil
}

// Stats are counted anew: there are none yet.
func (v *view) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

func (v *view) Close() error {
	if v.lib != nil {
		return v.lib.Close()
	}
	return nil
}
