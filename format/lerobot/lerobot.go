package lerobot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	infoPath       = "meta/info.json"
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20

	op reader.Op = "lerobot"
)

func init() {
	robocache.Register(robocache.Format{
		Name:         "lerobot",
		Stamped:      true,
		Detect:       Detect,
		Default:      true,
		Resumes:      true,
		Write:        write.Write,
		WriteOptions: write.WriteOptions,
		Keeps:        func(f *robocache.Feature) bool { return write.WhyDropped(f) == "" },
		StatsFile:    "meta/stats.json",
		WholeDoctor:  true,
		Sharding:     &write.Sharding,
		Open:         reader.Opener(Open),
	})
}

// Detect says whether meta/info.json is there.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := store.OpenFor(uri, opt)
	if err != nil {
		return false, err
	}
	defer store.Close(s)
	_, err = s.Stat(ctx, infoPath)
	if errors.Is(err, robocache.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Dataset is an open LeRobot dataset.
type Dataset struct {
	reader.Base
	raw      *infoFile
	eps      *episodes
	cols     []column       // parallel to info.Features
	byKey    map[string]int // into cols
	taskText map[int64]string
	paths    *paths
	cams     map[string]*camera
	tab      *tables
	lib      *video.Library
	modality *Modality

	originLock sync.Mutex
	origins    map[int64]*robocache.Origin // by episode_index; nil until the first request
	limit      int64
	repair     bool // OpenOptions.Repair

	mu      sync.Mutex
	noticed []robocache.Finding // what reading found after Open
	said    map[string]bool
	hidden  map[string]map[string][2]int // of hiddenFrames; nil: not read yet
	stats   robocache.Stats
	statsOK bool
	taskTab atomic.Pointer[episodeTasks]
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(
		uri,
		opt,
		func(s store.Store) (*Dataset, error) { return OpenStore(ctx, s, opt) },
	)
}

// OpenStore opens the dataset at the root of a store. Close of the dataset closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer func() {
		if err != nil && d != nil && d.tab != nil {
			d.tab.close()
		}
	}()
	defer crash.Recover("lerobot open", &err)
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	b, err := store.ReadFile(ctx, s, infoPath, maxJSON)
	if err := robocache.At(err, robocache.Where{"file": infoPath}); err != nil {
		return d, err
	}
	raw, found, err := parseInfo(b)
	if err != nil {
		return d, err
	}
	d = &Dataset{
		Base:   reader.Base{Bytes: s},
		raw:    raw,
		byKey:  map[string]int{},
		cams:   map[string]*camera{},
		said:   map[string]bool{},
		limit:  budget,
		repair: opt.Repair,
	}
	d.Offered = robocache.Capabilities{
		Diagnose:    d.Diagnose,
		LimitMemory: d.LimitMemory,
		Noticed:     d.Noticed,
		Origin:      d.Origin,
		SideStreams: d.SideStreams,
		VideoStart:  d.VideoStart,
	}
	d.About = &robocache.Info{
		URI:      s.URI(),
		Format:   "lerobot",
		Version:  raw.version,
		Robot:    raw.robot,
		FPS:      raw.fps,
		Splits:   raw.splits,
		Findings: found,
	}
	d.paths = newPaths(s, raw)
	if raw.major == 2 {
		if err := d.readEpisodesV2(ctx); err != nil {
			return d, err
		}
	} else {
		if err := d.readEpisodesV3(ctx); err != nil {
			return d, err
		}
	}
	if err := d.readTasks(ctx); err != nil {
		return d, err
	}
	d.tab = newTables(d, budget-budget/4) // the rest is the video library's
	if err := d.recountEpisodes(ctx); err != nil {
		return d, err
	}
	if err := d.describe(ctx); err != nil {
		return d, err
	}
	if err := d.readModality(ctx); err != nil {
		return d, err
	}
	d.compareClaims()
	d.lib = video.NewLibrary(
		func(ctx context.Context, path string) (robocache.Ranged, error) { return s.Open(ctx, path) },
		max(budget/4, smallestBudget/4),
	)
	return d, nil
}

// Video gives the dataset's video files.
func (d *Dataset) Video() *video.Library { return d.lib }

// Len is the number of rows of an episode; 0 for an episode that is not there.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= d.eps.n() {
		return 0
	}
	return int(d.eps.length[episode])
}

// LimitMemory lowers the budget of the tables and the video indexes together; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.tab.cache.Limit(bytes - bytes/4)
	d.lib.Limit(bytes / 4)
}

// Close releases files and caches.
func (d *Dataset) Close() error {
	err := d.lib.Close()
	d.tab.close()
	return errors.Join(err, store.Close(d.Bytes))
}

// Noticed gives what reading found after Open: files whose frames do not match their rows, and the
// like.
func (d *Dataset) Noticed() []robocache.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]robocache.Finding(nil), d.noticed...)
}

const maxNoticed = 10000

// notice records a finding once.
func (d *Dataset) notice(f robocache.Finding) {
	id := f.Code + "\x00" + f.Where.String()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said[id] || len(d.noticed) >= maxNoticed {
		return
	}
	d.said[id] = true
	d.noticed = append(d.noticed, f)
}

// find adds a finding of Open.
func (d *Dataset) find(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }

// compareClaims reports totals of info.json that differ from what is there.
func (d *Dataset) compareClaims() {
	claim := func(name string, said, have int64) {
		if said < 0 || said == have {
			return
		}
		f := warn(
			"total-differs",
			infoPath,
			fmt.Sprintf("%s says %d, there are %d", name, said, have),
			"write the number that is there",
		)
		f.Where["pointer"] = "/" + name
		d.find(f)
	}
	claim("total_episodes", d.raw.totalEpisodes, int64(d.About.Episodes))
	claim("total_frames", d.raw.totalFrames, d.About.Frames)
	claim("total_tasks", d.raw.totalTasks, int64(len(d.About.Tasks)))
	for name, span := range d.raw.splits {
		var from, to int64
		if n, _ := fmt.Sscanf(
			span,
			"%d:%d",
			&from,
			&to,
		); n == 2 &&
			(from < 0 || to > int64(d.About.Episodes) || from > to) {
			f := warn(
				"split-differs",
				infoPath,
				fmt.Sprintf("split %s is %s, there are %d episodes", name, span, d.About.Episodes),
				"write a split that ends where the episodes end",
			)
			f.Where["pointer"] = "/splits/" + escapePointer(name)
			d.find(f)
		}
	}
	d.reportUnsplit()
}

func (d *Dataset) checkEpisode(episode int) error { return op.Episode(d.eps.n(), episode) }
