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

// journalName is the file of the journal in the destination during a conversion.
const journalName = ".robocache-conversion.json"

// journal records which mp4s are finished and from which parts they were made. A resumed run
// repeats all steps but does not write these mp4s again.
type journal struct {
	dst store.Writable
	ID  string                 `json:"conversion"`
	Mp4 map[string]journalFile `json:"files"`
}

// journalFile identifies a finished mp4 by a hash of its parts, and by its size.
type journalFile struct {
	Key  string `json:"parts"`
	Size int64  `json:"size"`
}

// identity returns a hash of the conversion. Two conversions with the same identity write the same
// bytes.
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
		c.options.Episodes,
		c.options.codec,
		c.options.out.Video,
		c.options.out.Version,
		c.options.out.DataFileBytes,
		c.options.out.VideoFileBytes,
		c.options.out.ChunksSize,
		c.options.out.Frames,
		c.options.SkipBad,
		c.timestamps,
		c.options.images,
		c.options.groupRows,
		c.options.View,
	)
	for _, f := range c.features {
		fmt.Fprintln(h, f.source, f.Key, f.Kind, f.DType, f.Shape)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// openJournal creates the journal of a conversion. With resume, it continues an existing journal
// with the same identity.
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
			if err := decodeResumed(journalName, b, &old); err != nil {
				return nil, err
			}
			if old.ID != id {
				return nil, robocache.Misuse(
					"resume",
					robocache.Where{"dataset": dst.URI()},
					"the interrupted conversion in the destination had another source or other "+
						"options",
				).WithHint("pass the same options, or empty the destination")
			}
			if old.Mp4 != nil {
				j.Mp4 = old.Mp4
			}
		}
	}
	return j, j.writeFile(ctx)
}

// decodeResumed decodes a file that an interrupted conversion left.
func decodeResumed(name string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return robocache.Malformed("resume", robocache.Where{"file": name}, "").WithCause(err).
			WithHint("empty the destination and start again")
	}
	return nil
}

// writeFile writes the journal to the destination.
func (j *journal) writeFile(ctx context.Context) error {
	encoded, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return store.Put(ctx, j.dst, journalName, encoded)
}

// hasWork reports whether a resumed run could reuse anything. parts is the folder of encoded
// episodes.
func (j *journal) hasWork(parts string) bool {
	kept, err := os.ReadDir(parts)
	return len(j.Mp4) > 0 || err == nil && len(kept) > 0
}

// holdsOnlyJournal reports whether a destination holds nothing but the journal.
func holdsOnlyJournal(ctx context.Context, dst store.Writable) bool {
	files, err := dst.List(ctx, "")
	return err == nil && len(files) == 1 && files[0].Name == journalName
}

// hasFile reports whether an mp4 was finished from the parts with this key and still has its size.
func (j *journal) hasFile(ctx context.Context, name, key string) bool {
	f, ok := j.Mp4[name]
	if !ok || f.Key != key {
		return false
	}
	e, err := j.dst.Stat(ctx, name)
	return err == nil && e.Size == f.Size
}

// addFile records that an mp4 is finished.
func (j *journal) addFile(ctx context.Context, name, key string) error {
	e, err := j.dst.Stat(ctx, name)
	if err != nil {
		return err
	}
	j.Mp4[name] = journalFile{Key: key, Size: e.Size}
	return j.writeFile(ctx)
}

// staleAge is the time without writes after which an unfinished file counts as abandoned.
const staleAge = time.Hour

// destinationError returns the error about an unusable destination.
func destinationError(dst, msg, hint string) error {
	return robocache.Misuse(
		"convert",
		robocache.Where{"dataset": robocache.Redact(dst)},
		"%s",
		msg,
	).WithHint("%s", hint)
}

// checkDestination rejects a destination that holds anything but the remains of an interrupted
// conversion. isWhole reports that the dataset is complete and only its journal has to be removed.
func checkDestination(
	ctx context.Context,
	w store.Writable,
	dst string,
	resume bool,
) (isWhole bool, err error) {
	files, err := w.List(ctx, "")
	if err != nil {
		return isWhole, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f store.Entry) bool { return f.Name == name })
	}
	hasJournal := has(journalName)
	hasDataset := has("meta/info.json")
	isWhole = hasDataset && hasJournal && resume
	switch {
	case len(files) == 0, isWhole:
	case !hasJournal && hasDataset:
		return isWhole, destinationError(
			dst,
			"the destination already holds a dataset",
			"choose an empty destination",
		)
	case !hasJournal:
		return isWhole, destinationError(
			dst,
			"the destination is not empty",
			"choose an empty destination",
		)
	case !resume:
		return isWhole, destinationError(
			dst,
			"the destination holds an interrupted conversion",
			"resume it, or empty the destination",
		)
	}
	if local, ok := w.(*store.Local); ok {
		// Removes unfinished files of a killed run. With a journal, or if the caller resumes, no
		// other process writes here. A kill during the first write of the journal leaves no
		// journal, and then only old files are certainly abandoned.
		age := staleAge
		if hasJournal || resume {
			age = 0
		}
		if _, err := local.Sweep(ctx, age); err != nil {
			return isWhole, err
		}
	}
	return isWhole, nil
}
