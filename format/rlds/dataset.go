package rlds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"runtime"
	"sort"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

const (
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20
	maxRecord      = 1 << 30
	maxOpen        = 64 // shards that are open at once
)

// op names the format in errors.
const op = reader.Op("rlds")

var formatOptions = map[string]string{
	"split":      `splits to open, "train" or "train+val"; all of them by default`,
	"version":    "version folder to open if there are several; the highest by default",
	"config":     "folder above the versions, if the opened folder holds several datasets",
	"timestamps": "key of a numeric stream that holds each step's time, in place of a rate",
	"unpack_bytes": "most bytes of the temporary file (in TMPDIR) that shards compressed " +
		"with gzip or zlib are decompressed into; 64 GiB by default",
	"timestamp_unit": `unit of that stream: "s" (default), "ms", "us" or "ns"`,
}

func init() {
	robocache.Register(robocache.Format{
		Name:         "rlds",
		Detect:       Detect,
		Options:      formatOptions,
		Write:        Write,
		Keeps:        canHold,
		Sharding:     &sharding,
		WriteOptions: writeOptions,
		Open:         reader.Opener(Open),
	})
}

// Dataset is an open RLDS dataset.
type Dataset struct {
	reader.Base // the folder of the version
	info        *infoFile
	schema      *schema
	byKey       map[string]source
	shards      []shard
	index       []*shardIndex // parallel to shards; nil if the file is missing
	// position of the first episode of each shard, and the number of all episodes
	firstEpisodes []int
	firstIndexes  []int64   // the dataset's own number of the first episode of each shard
	tasks         [][]int64 // task number, by shard and by the shard's own number
	clock         clock
	files         *handles.Pool[string, robocache.Ranged]
	unpacked      *plainShards
	records       *lru.Cache[int, *record]
	// Records that were evicted from recs, without their images. Images are then read individually.
	imageless *lru.Cache[int, *record]
	limit     int64
	taskSlot  int // slot of the task's text, or -1
}

// source is the leaf from which a feature is made.
type source struct {
	leaf   int
	nested bool // the feature holds the inner lengths of the leaf, not its values
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri, which is the folder of a version or one of up to three levels
// above it.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(
		uri,
		opt,
		func(s store.Store) (*Dataset, error) { return OpenStore(ctx, s, opt) },
	)
}

// OpenStore opens the dataset in a store. Closing the dataset closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer guard.Recover("rlds open", &err)
	options := map[string]string{}
	if opt.Map != nil {
		maps.Copy(options, opt.Map.Options)
	}
	maps.Copy(options, opt.Options)
	dir, found := chooseFolder(ctx, s, options)
	root := guard.Must(store.Sub(s, dir))
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	d = &Dataset{
		Base:     reader.Base{Bytes: root},
		byKey:    map[string]source{},
		limit:    min(maxRecord, budget),
		taskSlot: -1,
	}
	d.Offered = robocache.Capabilities{
		Diagnose:     d.Diagnose,
		GatherRagged: d.GatherRagged,
		Lacks:        d.Lacks,
		LimitMemory:  d.LimitMemory,
		Origin:       d.Origin,
		Valid:        d.Valid,
	}
	b, err := store.ReadFile(ctx, root, infoName, min(maxJSON, budget))
	if err == nil {
		d.info, err = parseInfo(b)
	}
	guard.Check(err)
	if b, err = store.ReadFile(ctx, root, featuresName, min(maxJSON, budget)); err == nil {
		d.schema, err = parseFeatures(b)
	} else if errors.Is(err, robocache.ErrNotFound) {
		return nil, robocache.NotFound(
			"rlds",
			robocache.Where{"file": path.Join(dir, featuresName)},
			"the folder has %s and shards, but not %s",
			infoName,
			featuresName,
		).WithHint(
			"only this file has names, types and shapes: copy it from where the dataset " +
				"was prepared",
		)
	}
	guard.Check(err)
	own := readMetadata(ctx, root)
	d.About = &robocache.Info{
		URI:      root.URI(),
		Format:   "rlds",
		Version:  d.info.version,
		Findings: found,
		Splits:   map[string]string{},
	}
	if own.Robocache != nil {
		d.About.Robot = own.Robocache.Robot
	}
	d.files = handles.New[string, robocache.Ranged](maxOpen, math.MaxInt64)
	d.unpacked = newPlainShards(options["unpack_bytes"])
	opened := false
	defer func(d *Dataset) {
		if !opened { // also if a guard ended Open
			_ = d.files.Close()
			_ = d.unpacked.file.Close()
		}
	}(d)
	d.chooseTask(opt.Map)
	chosen := d.info.chooseSplits(options["split"])
	have := d.listFiles(ctx)
	d.shards = guard.Must(d.info.shardsOf(chosen, have))
	d.reportUnlisted(have)
	d.indexAll(ctx, budget/4)
	d.records = lru.New[int, *record](budget / 2)
	d.imageless = lru.New[int, *record](budget / 4)
	d.chooseClock(ctx, opt, options, own)
	d.describeStreams(ctx, own)
	d.examineClocks(ctx, opt, own)
	opened = true
	return d, nil
}

// listFiles returns the files of the version with their sizes, or nil if the store cannot list.
func (d *Dataset) listFiles(ctx context.Context) map[string]int64 {
	list, _, err := store.Files(ctx, d.Bytes, "", func(string) bool { return true })
	if errors.Is(err, robocache.ErrUnsupported) {
		return nil
	}
	guard.Check(err)
	have := make(map[string]int64, len(list))
	for _, e := range list {
		have[e.Name] = e.Size
	}
	return have
}

// reportUnlisted reports shards that dataset_info.json does not list. Without it, their steps would
// be missing silently.
func (d *Dataset) reportUnlisted(have map[string]int64) {
	if have == nil {
		return
	}
	known := map[string]bool{}
	all, err := d.info.shardsOf(reader.Episodes(nil, len(d.info.Splits)), have)
	if err != nil {
		return
	}
	for _, s := range all {
		known[s.name] = true
	}
	n, one := int64(0), ""
	for name := range have {
		if !known[name] && strings.Contains(path.Base(name), "tfrecord") {
			if n++; one == "" || name < one {
				one = name
			}
		}
	}
	if n > 0 {
		d.addFinding(robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "unlisted-file",
			Where:    robocache.Where{"file": one},
			Count:    n,
			Message: fmt.Sprintf(
				"%d files that look like shards are not in %s: they are not read",
				n,
				infoName,
			),
			Hint: "list them there, or move them away",
		})
	}
}

func (d *Dataset) addFinding(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }

// indexAll indexes all shards concurrently and numbers the episodes.
func (d *Dataset) indexAll(ctx context.Context, room int64) {
	d.index = make([]*shardIndex, len(d.shards))
	missing := make([]error, len(d.shards))
	g, gctx := errgroup.WithContext(ctx)
	atOnce := 2 * runtime.GOMAXPROCS(0)
	if strings.HasPrefix(d.Bytes.URI(), "http") {
		atOnce = 32
	}
	g.SetLimit(atOnce)
	for i := range d.shards {
		g.Go(func() (err error) {
			defer guard.Recover("rlds index", &err)
			x, err := guard.Value(
				func() *shardIndex { return d.indexShard(gctx, d.shards[i].name, room) },
			)
			if d.index[i] = x; errors.Is(err, robocache.ErrNotFound) ||
				errors.Is(err, robocache.ErrMisuse) ||
				errors.Is(err, robocache.ErrMalformed) {
				missing[i], err = err, nil
			}
			return robocache.At(err, robocache.Where{"file": d.shards[i].name})
		})
	}
	guard.Check(g.Wait())
	total := int64(0)
	for _, x := range d.index {
		if x != nil {
			total += x.bytes()
		}
	}
	if total > room {
		guard.Fail(robocache.ResourceLimit("rlds", nil, "").
			Expected(
				fmt.Sprintf("an index of at most %d bytes", room),
				fmt.Sprintf("%d bytes", total),
			).
			WithHint("give a larger memory budget, or open one split"))
	}
	d.numberEpisodes(missing)
}

// indexShard returns the index of a shard, from the cache of the process if possible.
func (d *Dataset) indexShard(ctx context.Context, name string, room int64) *shardIndex {
	f := d.openShard(ctx, name)
	defer d.files.Put(f)
	r := f.Value
	if !store.Versioned(r) {
		return d.buildIndex(ctx, name, r, room)
	}
	key := fmt.Sprintf(
		"%s/%s\x00%d\x00%s\x00%d\x00%d\x00%s",
		d.Bytes.URI(),
		name,
		r.Size(),
		r.Version(),
		d.taskSlot,
		d.limit,
		d.schema.text,
	)
	return leafcache.Load(ctx, indexes, key, func() (*shardIndex, int64) {
		x := d.buildIndex(ctx, name, r, room)
		return x, x.bytes() + int64(len(key))
	})
}

// openShard returns an open shard. The caller must call d.files.Put.
func (d *Dataset) openShard(
	ctx context.Context,
	name string,
) *handles.Handle[string, robocache.Ranged] {
	return guard.Must(
		d.files.Get(name, func() (robocache.Ranged, error) { return d.Bytes.Open(ctx, name) }),
	)
}

// numberEpisodes assigns positions to the episodes and collects the findings of the index.
func (d *Dataset) numberEpisodes(missing []error) {
	d.firstEpisodes = make([]int, len(d.shards)+1)
	d.firstIndexes = make([]int64, len(d.shards))
	d.tasks = make([][]int64, len(d.shards))
	byText := map[string]int64{}
	id, lost, unknown := int64(0), 0, int64(0)
	from := 0 // first episode of the split
	for i, s := range d.shards {
		d.firstEpisodes[i+1] = d.firstEpisodes[i]
		d.firstIndexes[i] = id
		x := d.index[i]
		if x == nil {
			lost++
			f := robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "missing-shard",
				Where:    robocache.Where{"file": s.name},
				Message:  fmt.Sprintf("the shard cannot be opened: %v", missing[i]),
				Hint:     "fetch it again",
				Lost:     true,
			}
			if errors.Is(missing[i], robocache.ErrNotFound) {
				f.Message, f.Hint = "the shard is missing", "fetch it into this folder, under "+
					"this name"
			}
			if f.Count = max(s.stated, 0); s.stated >= 0 {
				f.Message += fmt.Sprintf(": %d episodes are lost", s.stated)
				id += s.stated
			}
			d.addFinding(f)
			continue
		}
		n := len(x.offset)
		for _, f := range x.findings {
			w := robocache.Where{"file": s.name}
			maps.Copy(w, f.Where)
			if f.Code == "bad-record" {
				w["episode"] = id + int64(f.Where["index"].(int))
			}
			// lists of skipped episodes show only the message
			f.Where, f.Message = w, s.name+": "+f.Message
			d.addFinding(f)
		}
		if s.stated >= 0 && s.stated != int64(n) {
			d.addFinding(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "shard-length-differs",
				Where: robocache.Where{
					"file":    s.name,
					"pointer": fmt.Sprintf("/splits/%d/shardLengths/%d", s.split, s.number),
				},
				Message: fmt.Sprintf(
					"%s states %d episodes, but the shard holds %d",
					infoName,
					s.stated,
					n,
				),
				Hint: "write the actual number",
			})
		}
		unknown += x.unknown
		id += max(int64(n), s.stated)
		d.firstEpisodes[i+1] += n
		for _, t := range x.steps {
			d.About.Frames += int64(t)
		}
		for _, text := range x.tasks {
			k, ok := byText[text]
			if !ok {
				k = int64(len(d.About.Tasks))
				byText[text] = k
				d.About.Tasks = append(d.About.Tasks, robocache.Task{Index: k, Text: text})
			}
			d.tasks[i] = append(d.tasks[i], k)
		}
		if i == 0 || d.shards[i-1].split != s.split {
			from = d.firstEpisodes[i]
		}
		d.About.Splits[d.info.Splits[s.split].Name] = fmt.Sprintf(
			"%d:%d",
			from,
			d.firstEpisodes[i+1],
		)
	}
	if lost > 0 && lost == len(d.shards) {
		e := robocache.NotFound(
			"rlds",
			robocache.Where{"file": d.shards[0].name},
			"all %d shards are missing",
			lost,
		).WithHint(
			"fetch them into this folder, under the names that %s gives; or open another "+
				"split: %s",
			infoName,
			robocache.Option("split"),
		)
		if !errors.Is(missing[0], robocache.ErrNotFound) {
			e.Err = missing[0] // the message of a missing file needs no error of the system
		}
		guard.Fail(e)
	}
	if unknown > 0 {
		d.addFinding(robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "unknown-features",
			Where:    robocache.Where{"file": featuresName},
			Count:    unknown,
			Message: "records hold features that are not in " + featuresName +
				": they are not read",
		})
	}
	d.About.Episodes = d.firstEpisodes[len(d.shards)]
	indices := make([]int64, 0, d.About.Episodes)
	for i := range d.shards {
		for r := range d.firstEpisodes[i+1] - d.firstEpisodes[i] {
			indices = append(indices, d.firstIndexes[i]+int64(r))
		}
	}
	d.About.NumberEpisodes(indices)
}

// locateEpisode returns the shard of an episode and its record there.
func (d *Dataset) locateEpisode(episode int) (shard, rec int) {
	guard.Check(op.Episode(d.About.Episodes, episode))
	shard = sort.SearchInts(d.firstEpisodes, episode+1) - 1
	return shard, episode - d.firstEpisodes[shard]
}

// Len returns the number of steps of an episode, or 0 if the episode does not exist.
func (d *Dataset) Len(episode int) int {
	if op.Episode(d.About.Episodes, episode) != nil {
		return 0
	}
	s, r := d.locateEpisode(episode)
	return int(d.index[s].steps[r])
}

// Episode returns the position and the task of an episode. Its index counts all episodes that
// dataset_info.json states.
func (d *Dataset) Episode(ctx context.Context, episode int) (e robocache.Episode, err error) {
	defer guard.Recover("rlds episode", &err)
	s, r := d.locateEpisode(episode)
	e = robocache.Episode{
		Position: episode,
		Index:    d.firstIndexes[s] + int64(r),
		Length:   int(d.index[s].steps[r]),
	}
	if t := d.taskOf(s, r); t != "" {
		e.Tasks = []string{t}
	}
	return e, nil
}

// taskOf returns the task text of record r of shard s, or "".
func (d *Dataset) taskOf(s, r int) string {
	if t := d.index[s].taskNumber[r]; t >= 0 {
		return d.index[s].tasks[t]
	}
	return ""
}

// CacheStats returns the counters of the record cache.
func (d *Dataset) CacheStats() lru.Stats { return d.records.Stats() }

// LimitMemory lowers the budget of the records in memory.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.records.Limit(bytes / 2)
	d.imageless.Limit(bytes / 4)
}

// Close closes the files and removes the records from memory.
func (d *Dataset) Close() error {
	d.records.Clear()
	d.imageless.Clear()
	_ = d.files.Close()
	_ = d.unpacked.file.Close()
	return store.Close(d.Bytes)
}
