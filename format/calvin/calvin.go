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

// op is the name of the format in errors.
const op = reader.Op("calvin")

const (
	defaultBudget  = 256 << 20
	smallestBudget = 1 << 20
	idsName        = "ep_start_end_ids.npy"
	maxMember      = 256 << 20 // bytes of one array of a frame
	maxOpen        = 128       // number of frames that stay open
)

var options = map[string]string{
	"language": "text (default): annotations are text streams over the recorded runs; " +
		"episodes: each annotated window is an episode",
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

// splits lists the folders of a CALVIN dataset. "" means that the folder itself contains frames.
var splits = []string{"", "training", "validation"}

func inSplit(split, name string) string {
	if split == "" {
		return name
	}
	return split + "/" + name
}

// Detect reports whether ep_start_end_ids.npy is at the root, or in training/ or validation/. A
// local folder is also detected by its frames.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := store.OpenFor(uri, opt)
	if err != nil {
		if errors.Is(err, robocache.ErrMisuse) {
			return false, nil // a single file belongs to another format
		}
		return false, err
	}
	defer store.Close(s)
	for _, split := range splits {
		_, err := s.Stat(ctx, inSplit(split, idsName))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, robocache.ErrNotFound) {
			return false, err
		}
	}
	return !strings.Contains(uri, "://") && hasFrames(uri), nil
}

// maxNamesChecked is the number of names of a folder that are checked for frames, because folders
// of other formats can have millions of files.
const maxNamesChecked = 256

// hasFrames reports whether a local folder contains frames, even without ep_start_end_ids.npy.
func hasFrames(dir string) bool {
	for _, split := range splits {
		f, err := os.Open(filepath.Join(dir, split))
		if err != nil {
			continue
		}
		names, _ := f.Readdirnames(maxNamesChecked)
		f.Close()
		for _, name := range names {
			if _, ok := frameNumber(name); ok {
				return true
			}
		}
	}
	return false
}

type (
	files  = handles.Pool[int64, *openFrameFile]
	handle = handles.Handle[int64, *openFrameFile]
)

// Dataset is an open CALVIN dataset.
type Dataset struct {
	reader.Base
	episodes []episode
	starts   []int64 // first row of each episode in the dataset
	members  []member
	absent   [][]int32 // ascending runs that lack a member, by member
	streams  map[string]*stream
	language *language // nil if there are no annotations
	cache    *lru.Cache[int64, *frame]
	files    *files // open frames, because the streams of a batch are read one after the other
	rate     robocache.Rate
	// rateStated reports that the caller sets the rate.
	rateStated bool
	patterns   map[string]pattern // naming pattern of each split
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
	if err := op.Settle(opt.Options, options,
		map[string]reader.Set{"language": reader.Text(&language, "text", "episodes")}); err != nil {
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
	d.cache = lru.New[int64, *frame](budget - budget/4)
	d.files = handles.New[int64, *openFrameFile](maxOpen, budget/4)
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
	if err := d.describeMembers(ctx); err != nil {
		return d, err
	}
	if err := d.readLanguage(ctx, cmp.Or(opt.Options["annotations"], usualAnnotations)); err !=
		nil {
		return d, err
	}
	if language == "episodes" {
		if err := d.cutWindows(); err != nil {
			return d, err
		}
	}
	d.countRows()
	d.reportLacking()
	return d, d.examineClocks(ctx)
}

// MemoryBytes returns the memory that the dataset uses in addition to its cache.
func (d *Dataset) MemoryBytes() int64 {
	n := int64(len(d.episodes)) * 80
	if d.language != nil {
		n += d.language.bytes
	}
	return n
}

// LimitMemory lowers the budget of the caches; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.cache.Limit(bytes - bytes/4)
	d.files.Limit(bytes / 4)
}

// Close closes the open frames and the store.
func (d *Dataset) Close() error {
	err := d.files.Close()
	d.cache.Clear()
	return errors.Join(err, store.Close(d.Bytes))
}

func (d *Dataset) addFinding(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }
