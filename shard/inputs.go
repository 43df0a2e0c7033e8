package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Inputs describes the files of the source.
type Inputs struct {
	// Listed is false if the source cannot list its files. Changes are then not detected.
	Listed bool    `json:"listed"`
	Bytes  int64   `json:"bytes"`
	Files  []Input `json:"files,omitempty"`
}

// Input is one file of the source. Version is its ETag. For a local file, it is "content:" and the
// SHA-256 of its size and its first, middle and last 16 KiB. It depends on the content and not on
// the modification time.
type Input struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Version string `json:"version"`
}

// fingerprintBlock is the number of bytes read at the beginning, middle and end of a local file.
const fingerprintBlock = 16 << 10

// listInputs returns the files of a job's source.
func listInputs(ctx context.Context, job *Job) (in Inputs, err error) {
	if strings.HasPrefix(job.Source, "synth://") {
		return in, nil // the URI determines the content
	}
	st, only, err := openFiles(job)
	if err != nil {
		return in, err
	}
	defer store.Close(st)
	var entries []store.Entry
	if only != "" {
		e, err := st.Stat(ctx, only)
		if err != nil {
			return in, robocache.At(err, robocache.Where{"dataset": robocache.Redact(job.Source)})
		}
		entries = append(entries, e)
	} else if entries, err = st.List(ctx, ""); errors.Is(err, robocache.ErrUnsupported) {
		return in, nil
	}
	if err != nil {
		return in, err
	}
	entries = slices.DeleteFunc(entries, func(e store.Entry) bool {
		return e.Name == store.RecordingIndex // it may be updated while the job runs
	})
	_, local := store.LocalPath(job.Source)
	in.Listed, in.Files = true, make([]Input, len(entries))
	var g errgroup.Group
	g.SetLimit(8)
	for i, e := range entries {
		in.Bytes += e.Size
		in.Files[i] = Input{filepath.ToSlash(e.Name), e.Size, e.Version}
		if local && e.Err == nil {
			g.Go(func() (err error) {
				in.Files[i].Version, err = fingerprintFile(ctx, st, e.Name)
				return err
			})
		}
	}
	return in, g.Wait()
}

// openFiles opens the store of a job's source. For a single file, it opens the folder and returns
// the file's name.
func openFiles(job *Job) (st store.Store, only string, err error) {
	st, err = store.OpenFor(job.Source, job.Open)
	if err != nil {
		folder, name := store.Above(job.Source)
		var again error
		if st, again = store.OpenFor(folder, job.Open); again != nil {
			return st, only, err
		}
		only = name
	}
	return st, only, nil
}

// fingerprintFile returns Input.Version of a local file.
func fingerprintFile(ctx context.Context, st store.Store, name string) (_ string, err error) {
	defer crash.RecoverFile("plan", name, &err)
	f, err := st.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size := f.Size()
	h := sha256.New()
	fmt.Fprintln(h, size)
	buf := make([]byte, fingerprintBlock)
	for _, at := range []int64{0, (size - fingerprintBlock) / 2, size - fingerprintBlock} {
		at = max(0, at)
		b := buf[:min(fingerprintBlock, size-at)]
		if err := f.ReadAt(ctx, b, at); err != nil {
			return "", err
		}
		h.Write(b)
	}
	return "content:" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// checkUnchanged rejects a source that differs from the planned one.
func (m *Manifest) checkUnchanged(ctx context.Context) error {
	now, err := listInputs(ctx, &m.Job)
	if err != nil {
		return err
	}
	differs := func(name, want, got string) error {
		return robocache.Malformed("run", robocache.Where{
			"dataset": robocache.Redact(m.Job.Source),
			"file":    name,
		}, "the source changed since it was planned").
			Expected(want, got).
			WithHint("plan again")
	}
	have := map[string]Input{}
	for _, f := range now.Files {
		have[f.Name] = f
	}
	for _, f := range m.Inputs.Files {
		g, ok := have[f.Name]
		switch {
		case !ok:
			if err := differs(f.Name, "a file of "+strconv.FormatInt(f.Size, 10)+
				" bytes", "none"); err != nil {
				return err
			}
		case g != f:
			if err := differs(f.Name, fmt.Sprintf("%d bytes, %s", f.Size, f.Version),
				fmt.Sprintf("%d bytes, %s", g.Size, g.Version)); err != nil {
				return err
			}
		}
	}
	if len(now.Files) > len(m.Inputs.Files) && m.Inputs.Listed {
		if err := differs("", fmt.Sprintf("%d files", len(m.Inputs.Files)),
			strconv.Itoa(len(now.Files))); err != nil {
			return err
		}
	}
	return nil
}
