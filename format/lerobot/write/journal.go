package write

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// journalName lies in the destination while a conversion is under way.
const journalName = ".robocache-conversion.json"

// journal remembers which mp4s are finished, and of what: a resumed run goes through the same steps
// and leaves those out.
type journal struct {
	dst store.Writable
	ID  string                 `json:"conversion"`
	Mp4 map[string]journalFile `json:"files"`
}

type journalFile struct {
	Key  string `json:"parts"`
	Size int64  `json:"size"`
}

// identity names a conversion: two with one identity write the same bytes.
func (c *conversion) identity() string {
	h := sha256.New()
	info := c.src.Info()
	fmt.Fprintln(
		h,
		info.URI,
		info.Format,
		info.Version,
		info.Frames,
		info.Splits,
		c.fps,
		c.opt.Episodes,
		c.opt.codec,
		c.opt.out.Video,
		c.opt.out.DataFileBytes,
		c.opt.out.VideoFileBytes,
		c.opt.out.ChunksSize,
		c.opt.out.Frames,
		c.opt.SkipBad,
		c.timestamps,
		c.opt.images,
		c.opt.groupRows,
		c.opt.View,
	)
	for _, f := range c.features {
		fmt.Fprintln(h, f.source, f.Key, f.Kind, f.DType, f.Shape)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func openJournal(
	ctx context.Context,
	dst store.Writable,
	id string,
	resume bool,
) (_ *journal, err error) {
	defer crash.Recover("resume", &err)
	j := &journal{dst: dst, ID: id, Mp4: map[string]journalFile{}}
	if resume {
		b, err := store.ReadFile(ctx, dst, journalName, 64<<20)
		switch {
		case errors.Is(err, robocache.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			var old journal
			if err := resumed(journalName, b, &old); err != nil {
				return nil, err
			}
			if old.ID != id {
				return nil, robocache.Misuse("resume", robocache.Where{"dataset": dst.URI()}, "another conversion was interrupted here: another source, or other options").
					WithHint("give the same options, or empty the destination")
			}
			if old.Mp4 != nil {
				j.Mp4 = old.Mp4
			}
		}
	}
	return j, j.write(ctx)
}

// resumed reads a file that an interrupted conversion left.
func resumed(name string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return robocache.Malformed("resume", robocache.Where{"file": name}, "").WithCause(err).
			WithHint("empty the destination and begin again")
	}
	return nil
}

func (j *journal) write(ctx context.Context) error {
	encoded, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return store.Put(ctx, j.dst, journalName, encoded)
}

// worth says that there is something that a resumed run would take over.
func (j *journal) worth(parts string) bool {
	kept, err := os.ReadDir(parts)
	return len(j.Mp4) > 0 || err == nil && len(kept) > 0
}

// alone says that nothing lies in a destination but the journal.
func alone(ctx context.Context, dst store.Writable) bool {
	files, err := dst.List(ctx, "")
	return err == nil && len(files) == 1 && files[0].Name == journalName
}

func (j *journal) has(ctx context.Context, name, key string) bool {
	f, ok := j.Mp4[name]
	if !ok || f.Key != key {
		return false
	}
	e, err := j.dst.Stat(ctx, name)
	return err == nil && e.Size == f.Size
}

func (j *journal) add(ctx context.Context, name, key string) error {
	e, err := j.dst.Stat(ctx, name)
	if err != nil {
		return err
	}
	j.Mp4[name] = journalFile{Key: key, Size: e.Size}
	return j.write(ctx)
}

// staleAge is how long nobody has written to an unfinished file before it counts as left behind.
const staleAge = time.Hour

func taken(dst, msg, hint string) error {
	return robocache.Misuse("convert", robocache.Where{"dataset": robocache.Redact(dst)}, "%s", msg).
		WithHint("%s", hint)
}

// free refuses a destination that holds anything, but for what an interrupted conversion left.
// whole says that only its end is missing: the dataset is there, and its journal.
func free(ctx context.Context, w store.Writable, dst string, resume bool) (whole bool, err error) {
	files, err := w.List(ctx, "")
	if err != nil {
		return whole, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f store.Entry) bool { return f.Name == name })
	}
	journal, dataset := has(journalName), has("meta/info.json")
	switch whole = dataset && journal && resume; {
	case len(files) == 0, whole:
	case !journal && dataset:
		return whole, taken(dst, "there is a dataset here already", "choose an empty destination")
	case !journal:
		return whole, taken(dst, "the destination is not empty", "choose an empty destination")
	case !resume:
		return whole, taken(
			dst,
			"an interrupted conversion lies here",
			"resume it, or empty the destination",
		)
	}
	if l, ok := w.(*store.Local); ok {
		// What a kill left unfinished. Where there is a journal or the caller resumes, nobody else
		// writes here; a kill while the first journal was written leaves none, and then only what
		// is old is surely nobody's.
		age := staleAge
		if journal || resume {
			age = 0
		}
		if _, err := l.Sweep(ctx, age); err != nil {
			return whole, err
		}
	}
	return whole, nil
}
