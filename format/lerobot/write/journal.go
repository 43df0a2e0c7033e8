package write

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// journalName lies in the destination while a conversion is under way.
const journalName = ".robocache-conversion.json"

// journal remembers which mp4s are finished, and of what: a resumed run goes through the same steps and leaves those out.
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
	fmt.Fprintln(h, info.URI, info.Format, info.Version, info.Frames, info.Splits, c.fps, c.opt.Episodes, c.opt.codec, c.opt.out.Video, c.opt.out.DataFileBytes, c.opt.out.VideoFileBytes, c.opt.out.ChunksSize, c.opt.out.Frames, c.opt.SkipBad, c.timestamps, c.opt.images, c.opt.groupRows, c.opt.View)
	for _, f := range c.features {
		fmt.Fprintln(h, f.source, f.Key, f.Kind, f.DType, f.Shape)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func openJournal(ctx context.Context, dst store.Writable, id string, resume bool) (*journal, error) {
	j := &journal{dst: dst, ID: id, Mp4: map[string]journalFile{}}
	if resume {
		b, err := store.ReadFile(ctx, dst, journalName, 64<<20)
		switch {
		case errors.Is(err, robocache.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			var old journal
			if err := json.Unmarshal(b, &old); err != nil {
				return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "resume", Where: robocache.Where{"file": journalName}, Err: err, Hint: "empty the destination and begin again"}
			}
			if old.ID != id {
				return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "resume", Where: robocache.Where{"dataset": dst.URI()}, Msg: "another conversion was interrupted here: another source, or other options", Hint: "give the same options, or empty the destination"}
			}
			if old.Mp4 != nil {
				j.Mp4 = old.Mp4
			}
		}
	}
	return j, j.write(ctx)
}

func (j *journal) write(ctx context.Context) error {
	b, err := json.Marshal(j)
	if err != nil {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "convert", Where: robocache.Where{"file": journalName}, Err: err}
	}
	w, err := j.dst.Create(ctx, journalName)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
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
