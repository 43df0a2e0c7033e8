package calvin

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

// op names the format in errors.
const op = reader.Op("calvin")

const (
	defaultBudget  = 256 << 20
	smallestBudget = 1 << 20
	idsName        = "ep_start_end_ids.npy"
	maxMember      = 256 << 20 // of one array of a frame
	maxOpen        = 128       // frames that stay open
)

var options = map[string]string{
	"language":    "text (default): annotations are text streams over the recorded runs; episodes: each annotated window is an episode",
	"annotations": "folder of auto_lang_ann.npy in each split (default lang_annotations)",
}

func init() {
	robocache.Register(
		robocache.Format{
			Name:    "calvin",
			Detect:  Detect,
			Options: options,
			Open:    reader.Opener(Open),
		},
	)
}

// splits are the folders that a CALVIN dataset has; "" is a folder of frames itself.
var splits = []string{"", "training", "validation"}

func at(split, name string) string {
	if split == "" {
		return name
	}
	return split + "/" + name
}

// Detect says whether ep_start_end_ids.npy is there, or in training/ or validation/; of a local
// folder also whether frames are.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := store.OpenFor(uri, opt)
	if err != nil {
		if errors.Is(err, robocache.ErrMisuse) {
			return false, nil // a file: another format's
		}
		return false, err
	}
	defer store.Close(s)
	for _, split := range splits {
		_, err := s.Stat(ctx, at(split, idsName))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, robocache.ErrNotFound) {
			return false, err
		}
	}
	return !strings.Contains(uri, "://") && hasFrames(uri), nil
}

// lookAt is how many names of a folder are looked at for one of a frame: other formats' folders
// hold millions.
const lookAt = 256

// hasFrames says whether a folder of this machine holds frames, whose ep_start_end_ids.npy was not
// fetched.
func hasFrames(dir string) bool {
	for _, split := range splits {
		f, err := os.Open(filepath.Join(dir, split))
		if err != nil {
			continue
		}
		names, _ := f.Readdirnames(lookAt)
		f.Close()
		for _, name := range names {
			if _, ok := number(name); ok {
				return true
			}
		}
	}
	return false
}

type (
	files  = handles.Pool[int64, *opened]
	handle = handles.Handle[int64, *opened]
)

// Dataset is an open CALVIN dataset.
type Dataset struct {
	reader.Base
	eps     []episode
	starts  []int64 // first row of each episode in the dataset
	members []member
	absent  [][]int32 // runs that lack a member, ascending
	streams map[string]*stream
	lang    *language // nil where there are no annotations
	cache   *lru.Cache[int64, *frame]
	files   *files // open frames: the streams of a batch are asked for one after the other
	rate    robocache.Rate
	// rateStated is set if the caller states the rate.
	rateStated bool
	patterns   map[string]pattern // of each split
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri: a folder with training/ and validation/, or one of them.
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
	defer crash.Recover("calvin open", &err)
	language := "text"
	if err := op.Settle(
		opt.Options,
		options,
		map[string]reader.Set{"language": reader.Text(&language, "text", "episodes")},
	); err != nil {
		return d, err
	}
	d = &Dataset{
		Base:     reader.Base{Bytes: s},
		streams:  map[string]*stream{},
		rate:     robocache.Rate{Num: 30, Den: 1},
		patterns: map[string]pattern{},
	}
	d.Offered = robocache.Capabilities{
		Diagnose:    d.Diagnose,
		Lacks:       d.Lacks,
		LeaseFrames: d.LeaseFrames,
		LimitMemory: d.LimitMemory,
		Origin:      d.Origin,
		Valid:       d.Valid,
	}
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	d.cache, d.files = lru.New[int64, *frame](
		budget-budget/4,
	), handles.New[int64, *opened](
		maxOpen,
		budget/4,
	)
	if !opt.HZ.Zero() {
		d.rate, d.rateStated = opt.HZ, true
	}
	d.About = &robocache.Info{
		URI:     s.URI(),
		Format:  "calvin",
		Version: "npz",
		Robot:   "franka_panda",
		FPS:     d.rate,
		Splits:  map[string]string{},
	}
	if err := d.readRuns(ctx); err != nil {
		return d, err
	}
	if err := d.describe(ctx); err != nil {
		return d, err
	}
	if err := d.readLanguage(
		ctx,
		cmp.Or(opt.Options["annotations"], usualAnnotations),
	); err != nil {
		return d, err
	}
	if language == "episodes" {
		if err := d.cutWindows(); err != nil {
			return d, err
		}
	}
	d.number()
	d.reportLacking()
	return d, d.examineClocks(ctx)
}

// MemoryBytes is what the dataset holds besides its cache.
func (d *Dataset) MemoryBytes() int64 {
	n := int64(len(d.eps)) * 80
	if d.lang != nil {
		n += d.lang.bytes
	}
	return n
}

// LimitMemory lowers the budget of what is kept; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.cache.Limit(bytes - bytes/4)
	d.files.Limit(bytes / 4)
}

// Close releases what is kept.
func (d *Dataset) Close() error {
	err := d.files.Close()
	d.cache.Clear()
	return errors.Join(err, store.Close(d.Bytes))
}

func (d *Dataset) find(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }
