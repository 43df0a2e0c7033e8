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
	"github.com/goatnote-inc/robocache/format/recindex"
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

// Detect reports whether meta/info.json exists.
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
	episodes *episodes
	columns  []column       // parallel to info.Features
	byKey    map[string]int // feature key → position in columns
	taskText map[int64]string
	paths    *paths
	cameras  map[string]*camera
	tables   *tables
	library  *video.Library

	originLock  sync.Mutex
	origins     map[int64]*robocache.Origin // by episode_index; nil until the first request
	memoryLimit int64
	repair      bool // OpenOptions.Repair
	isGrowing   bool // OpenOptions.Growing

	mu          sync.Mutex
	noticed     []robocache.Finding // findings of reads after Open
	noticedKeys map[string]bool
	hidden      map[string]map[string][2]int // result of hiddenFrames; nil until it is read
	stats       robocache.Stats
	statsRead   bool
	taskTable   atomic.Pointer[episodeTasks]
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

// OpenStore opens the dataset at the root of s. Closing the dataset closes s.
func OpenStore(
	ctx context.Context,
	s store.Store,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer func() {
		if err != nil && d != nil && d.tables != nil {
			d.tables.close()
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
		Base:        reader.Base{Bytes: s},
		raw:         raw,
		byKey:       map[string]int{},
		cameras:     map[string]*camera{},
		noticedKeys: map[string]bool{},
		memoryLimit: budget,
		repair:      opt.Repair,
		isGrowing:   opt.Growing,
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
	var index *recindex.Session // for the data files of v2, one per episode
	if raw.major == 2 {
		if index, err = recindex.Begin(ctx, s, opt, true); err != nil {
			return d, err
		}
		s = index.WrapStore(s)
		d.Bytes = s
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
	d.tables = newTables(d, budget-budget/4) // the rest is for the video library
	if err := d.recountEpisodes(ctx); err != nil {
		return d, err
	}
	if err := d.describeFeatures(ctx); err != nil {
		return d, err
	}
	if err := d.readModality(ctx); err != nil {
		return d, err
	}
	d.compareTotals()
	d.About.Findings = append(d.About.Findings, index.Finish()...)
	d.library = video.NewLibrary(
		func(ctx context.Context, path string) (robocache.Ranged, error) {
			return s.Open(ctx, path)
		},
		max(budget/4, smallestBudget/4),
	)
	return d, nil
}

// Video returns the library of the dataset's video files.
func (d *Dataset) Video() *video.Library { return d.library }

// Len returns the number of rows of an episode, or 0 if the episode does not exist.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= d.episodes.count() {
		return 0
	}
	return int(d.episodes.length[episode])
}

// LimitMemory lowers the joint budget of the tables and the video indexes. It never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.tables.cache.Limit(bytes - bytes/4)
	d.library.Limit(bytes / 4)
}

// Close releases files and caches.
func (d *Dataset) Close() error {
	err := d.library.Close()
	d.tables.close()
	return errors.Join(err, store.Close(d.Bytes))
}

// Noticed returns findings of reads after Open, such as files whose frames do not match their rows.
func (d *Dataset) Noticed() []robocache.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]robocache.Finding(nil), d.noticed...)
}

// maxNoticed bounds the findings that reads record.
const maxNoticed = 10000

// noticeOnce records a finding of a read. A finding that was recorded before is ignored.
func (d *Dataset) noticeOnce(f robocache.Finding) {
	id := f.Code + "\x00" + f.Where.String()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noticedKeys[id] || len(d.noticed) >= maxNoticed {
		return
	}
	d.noticedKeys[id] = true
	d.noticed = append(d.noticed, f)
}

// addFinding adds a finding of Open.
func (d *Dataset) addFinding(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }

// compareTotals reports totals and splits of info.json that differ from the actual ones.
func (d *Dataset) compareTotals() {
	compare := func(name string, stated, have int64) {
		if stated < 0 || stated == have {
			return
		}
		f := warningAt(
			"total-differs",
			infoPath,
			fmt.Sprintf("%s is %d, but the dataset has %d", name, stated, have),
			"write the actual number",
		)
		f.Where["pointer"] = "/" + name
		d.addFinding(f)
	}
	compare("total_episodes", d.raw.totalEpisodes, int64(d.About.Episodes))
	compare("total_frames", d.raw.totalFrames, d.About.Frames)
	compare("total_tasks", d.raw.totalTasks, int64(len(d.About.Tasks)))
	for name, span := range d.raw.splits {
		var from, to int64
		n, _ := fmt.Sscanf(span, "%d:%d", &from, &to)
		isInside := from >= 0 && from <= to && to <= int64(d.About.Episodes)
		if n == 2 && !isInside {
			f := warningAt(
				"split-differs",
				infoPath,
				fmt.Sprintf(
					"split %s is %s, but there are %d episodes",
					name,
					span,
					d.About.Episodes,
				),
				"write a split that ends where the episodes end",
			)
			f.Where["pointer"] = "/splits/" + escapePointer(name)
			d.addFinding(f)
		}
	}
	d.reportUnsplit()
}

// checkEpisode returns an error if the dataset has no episode at a position.
func (d *Dataset) checkEpisode(episode int) error { return op.Episode(d.episodes.count(), episode) }
