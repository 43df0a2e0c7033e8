package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Committed is the result of Commit.
type Committed struct {
	Manifest    string    `json:"manifest_sha256"`
	Destination string    `json:"destination"`
	Job         string    `json:"job"`
	Shards      int       `json:"shards"`
	Missing     Episodes  `json:"missing_shards,omitempty"`
	Episodes    int       `json:"num_episodes"`
	Frames      int64     `json:"num_frames"`
	Files       int       `json:"files"`
	Bytes       int64     `json:"bytes"`
	Skipped     []Skipped `json:"skipped,omitempty"`
	// Findings holds the findings of the plan and of all shards. A job in one process reports the
	// same.
	Findings []robocache.Finding `json:"findings,omitempty"`
}

// CommitOptions configures Commit.
type CommitOptions struct {
	Partial bool // commit the available shards
	Verify  bool // read every staged file and compare its checksum
}

// Commit combines the shards into the result.
func Commit(ctx context.Context, m *Manifest, opt CommitOptions) (c *Committed, err error) {
	defer crash.Recover("commit", &err)
	dst, err := store.OpenWritable(m.Job.Destination)
	if err != nil {
		return c, err
	}
	defer store.Close(dst)
	if c, err = m.commitShards(ctx, dst, opt); err != nil {
		// Another commit may have finished first and removed the staged files.
		if won, werr := m.readCommitted(ctx, dst); werr == nil && won != nil {
			return won, nil
		}
	}
	return c, err
}

func (m *Manifest) commitShards(
	ctx context.Context,
	dst store.Writable,
	opt CommitOptions,
) (_ *Committed, err error) {
	defer crash.Recover("commit", &err)
	format, err := m.outputSharding()
	if err != nil {
		return nil, err
	}
	c, err := m.readCommitted(ctx, dst)
	if err != nil {
		return nil, err
	}
	var receipts []*Receipt
	var missing Episodes
	if c == nil {
		staging, err := store.Sub(dst, stagingName)
		if err != nil {
			return nil, err
		}
		if err := store.Probe(ctx, staging.(store.Writable)); err != nil {
			return nil, err
		}
		// It is written before the receipts are read, so that an attempt with a later receipt finds
		// it.
		if opt.Partial && !format.Whole {
			if err := store.Put(ctx, dst, partialName, nil); err != nil {
				return nil, err
			}
		}
		present, err := listSizes(ctx, dst, "")
		if err != nil {
			return nil, err
		}
		if receipts, missing, err = m.readReceipts(ctx, dst, present); err != nil {
			return nil, err
		}
		if text, _ := missing.MarshalText(); len(missing) > 0 &&
			(!opt.Partial || len(missing) == len(m.Shards)) {
			return nil, robocache.Temporary("commit", robocache.Where{
				"dataset": robocache.Redact(m.Job.Destination),
			}, "%d of %d shards are missing: %s", len(missing), len(m.Shards), text).
				WithHint("run them, or commit the others with --partial")
		} else if len(missing) > 0 &&
			format.Whole {
			return nil, robocache.Unsupported("commit", robocache.Where{
				"dataset": robocache.Redact(m.Job.Destination),
			}, "%s without the shards %s: positions depend on the plan", m.Job.To, string(text)).
				WithHint("run the shards that are missing")
		}
		if receipts, missing,
			err = m.agreeOnShards(ctx, dst, receipts, missing, opt.Partial); err != nil {
			return nil, err
		}
		c = &Committed{
			Manifest:    m.id,
			Destination: robocache.Redact(m.Job.Destination),
			Job:         m.Job.Name,
			Shards:      len(receipts),
			Missing:     missing,
			Findings:    m.allFindings(receipts),
		}
		if len(missing) > 0 { // an attempt may have written its receipt since
			if present, err = listSizes(ctx, dst, ""); err != nil {
				return nil, err
			}
		}
		left, err := m.moveFiles(ctx, dst, format, receipts, c, present, opt.Verify)
		if err != nil {
			return nil, err
		}
		{
			kind, err := findJob(m.Job.Name)
			if err != nil {
				return nil, err
			}
			merge := kind.merge
			if merge != nil {
				if err := merge(ctx, m, dst, receipts); err != nil {
					return nil, err
				}
			} else {
				if err := convert.Merge(ctx, m.Job.To, m.Job.Destination, m.Schema,
					shardReports(receipts)); err != nil {
					return nil, err
				}
			}
		}
		encoded, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		err = store.PutNew(ctx, dst, commitName, encoded)
		if !errors.Is(err, store.ErrExists) {
			if err != nil {
				return nil, err
			}
		} else {
			var failed error
			if c, failed = m.readCommitted(ctx, dst); failed != nil {
				return nil, failed
			}
			if c == nil {
				return nil, err
			}
		}
		var g errgroup.Group
		g.SetLimit(16)
		for _, name := range append(left, partialName) {
			g.Go(func() error { _ = dst.Remove(ctx, name); return nil })
		}
		_ = g.Wait()
		removeEmpty(joinURI(m.Job.Destination, stagingName))
	}
	if format.Unfinished != "" {
		if err := dst.Remove(ctx, format.Unfinished); err != nil &&
			!errors.Is(err, robocache.ErrNotFound) {
			return nil, err
		}
	}
	return c, nil
}

// readCommitted returns the committed result of the manifest, or nil if there is none.
func (m *Manifest) readCommitted(ctx context.Context, st store.Store) (*Committed, error) {
	b, err := store.ReadFile(ctx, st, commitName, 1<<30)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &Committed{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, robocache.Malformed("commit", robocache.Where{"file": commitName}, "").
			WithCause(err)
	}
	if c.Manifest != m.id {
		return nil, robocache.Misuse("commit", robocache.Where{
			"file": commitName,
		}, "another manifest was committed here").
			WithHint("choose an empty destination")
	}
	return c, nil
}

// listSizes returns the size of each file below a folder.
func listSizes(ctx context.Context, st store.Store, dir string) (map[string]int64, error) {
	present := map[string]int64{}
	entries, err := st.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		present[e.Name] = e.Size
	}
	return present, nil
}

// readReceipts reads the existing receipts in the order of the shards.
func (m *Manifest) readReceipts(
	ctx context.Context,
	st store.Store,
	present map[string]int64,
) (out []*Receipt, missing Episodes, err error) {
	all := make([]*Receipt, len(m.Shards))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range m.Shards {
		if _, ok := present[receiptName(i)]; ok {
			g.Go(func() (err error) { all[i], err = m.readReceipt(gctx, st, i); return err })
		}
	}
	if err := g.Wait(); err != nil {
		return out, missing, err
	}
	for i, r := range all {
		if r == nil {
			missing = append(missing, i)
		} else {
			out = append(out, r)
		}
	}
	return out, missing, nil
}

// agreeOnShards determines the shards of the result, which are those of the first commit. Other
// shards would change the numbers of episodes in files that the first commit has already numbered.
func (m *Manifest) agreeOnShards(
	ctx context.Context,
	dst store.Writable,
	receipts []*Receipt,
	missing Episodes,
	partial bool,
) ([]*Receipt, Episodes, error) {
	encoded, err := json.Marshal(missing)
	if err != nil {
		return nil, nil, err
	}
	err = store.PutNew(ctx, dst, missingName, encoded)
	if !errors.Is(err, store.ErrExists) {
		if err != nil {
			return nil, nil, err
		}
		return receipts, missing, nil
	}
	var first Episodes
	{
		content, err := store.ReadFile(ctx, dst, missingName, 1<<20)
		if err != nil {
			return nil, nil, err
		}
		err = json.Unmarshal(content, &first)
		if err != nil {
			return nil, nil, robocache.Malformed("commit", robocache.Where{
				"file": missingName,
			}, "").
				WithCause(err)
		}
	}
	if text, _ := first.MarshalText(); len(first) > 0 && !partial {
		return nil, nil, robocache.Misuse("commit", robocache.Where{
			"file": missingName,
		}, "a partial commit without the shards %s began, and files have its numbers", string(
			text,
		)).
			WithHint("end it with --partial, or plan into an empty destination")
	}
	for _, i := range missing {
		if !slices.Contains(first, i) {
			return nil, nil, robocache.Temporary("commit", robocache.Where{
				"shard": i,
			}, "an earlier commit had its receipt, which is gone").
				WithHint("run the shard again")
		}
	}
	return slices.DeleteFunc(
		receipts,
		func(r *Receipt) bool { return slices.Contains(first, r.Shard) },
	), first, nil
}

// moveFiles gives the files of the receipts their final names. A file with its final name was moved
// by its attempt, or by a commit that was killed. left holds the other files of the receipts.
// present holds the files that existed when the receipts were read.
func (m *Manifest) moveFiles(
	ctx context.Context,
	dst store.Writable,
	format *robocache.Sharding,
	receipts []*Receipt,
	c *Committed,
	present map[string]int64,
	verify bool,
) (left []string, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	place, err := convert.Place(format, m.Job.Destination, m.Schema, shardReports(receipts))
	if err != nil {
		return left, err
	}
	var moves []func() error
	named := map[string]*File{} // shards share files whose names depend on their content
	for i, r := range receipts {
		s, dir := &m.Shards[r.Shard], attemptDir(r.Shard, r.Attempt)
		// the episodes and rows of missing shards before this one
		episodes, rows := s.FirstEpisode-c.Episodes, s.FirstRow-c.Frames
		c.Episodes, c.Frames = c.Episodes+r.Report.Episodes, c.Frames+r.Report.Frames
		c.Skipped = append(c.Skipped, r.Skipped...)
		shifted := format.Renumber != nil && (episodes != 0 || rows != 0)
		if _, noted := present[dir+".json"]; noted && shifted &&
			isAlive(ctx, dst, dir+".json", quietLimit) {
			return left, robocache.Temporary("commit", robocache.Where{
				"shard": r.Shard,
			}, "its attempt is moving its files").
				WithHint("commit again")
		}
		for _, f := range r.Files {
			from, to := dir+"/"+f.Name, f.Name
			if !format.Kept(f.Name) {
				if _, ok := present[from]; ok {
					left = append(left, from)
				}
				continue
			}
			if place != nil {
				if to = place[i][f.Name]; to == "" {
					return left, f.mismatchError(
						r.Shard,
						from,
						"a file that the receipt's summary has",
						"none",
					)
				}
			}
			if same := named[to]; same == nil {
				named[to], c.Files, c.Bytes = &f, c.Files+1, c.Bytes+f.Size
			} else if same.Size != f.Size || same.Checksum != f.Checksum {
				return left, f.mismatchError(r.Shard, from, "one file of the name "+to, "two")
			}
			var renumber func(context.Context, robocache.Ranged, io.Writer) error
			if shifted {
				renumber = format.Renumber(f.Name, episodes, rows)
			}
			moves = append(moves, crash.Func("commit", func() error {
				size, staged := present[from]
				if !staged {
					var moved bool
					if size, moved = present[to]; !moved { // or moved while the files were listed
						e, err := dst.Stat(gctx, to)
						if errors.Is(err, robocache.ErrNotFound) {
							err = robocache.NotFound("commit", robocache.Where{
								"file":  to,
								"shard": r.Shard,
							}, "the receipt names it, but it does not exist").
								WithHint("%s", rerunHint(r.Shard))
						}
						if err != nil {
							return err
						}
						size = e.Size
					}
					from = to
				}
				if size != f.Size && (staged || renumber == nil) {
					return f.mismatchError(
						r.Shard,
						from,
						fmt.Sprintf("%d bytes", f.Size),
						fmt.Sprint(size),
					)
				}
				if verify && renumber == nil {
					if now, err := checksumFile(gctx, dst, from); err != nil {
						return err
					} else if now.Checksum != f.Checksum {
						return f.mismatchError(r.Shard, from, f.Checksum, now.Checksum)
					}
				}
				var err error
				if renumber != nil {
					err = f.writeRenumbered(gctx, dst, r.Shard, from, to, renumber)
				} else if staged {
					err = store.Move(gctx, dst, from, to)
				}
				if errors.Is(err, robocache.ErrNotFound) { // moved by another process
					_, err = dst.Stat(gctx, to)
				}
				return robocache.At(err, robocache.Where{"shard": r.Shard})
			}))
		}
	}
	for _, move := range moves { // after all receipts were checked
		g.Go(move)
	}
	if err := g.Wait(); err != nil {
		return left, err
	}
	return left, nil
}

// writeRenumbered rewrites a file with renumber. If the file already has its final name, a commit
// that was killed or runs at the same time may have renumbered it. Only the version with the
// checksum of the receipt is therefore renumbered.
func (f *File) writeRenumbered(
	ctx context.Context,
	dst store.Writable,
	shard int,
	from, to string,
	renumber func(context.Context, robocache.Ranged, io.Writer) error,
) error {
	in, err := dst.Open(ctx, from)
	if err != nil {
		return err
	}
	defer in.Close()
	err = func() error {
		if sum, err := rangedChecksum(ctx, in); err != nil {
			return err
		} else if sum != f.Checksum && from != to {
			return f.mismatchError(shard, from, f.Checksum, sum)
		} else if sum != f.Checksum {
			return nil
		}
		out, err := dst.Create(ctx, to)
		if err != nil {
			return err
		}
		defer out.Abort()
		if err := renumber(ctx, in, out); err != nil {
			return err
		}
		if err := out.Commit(); err != nil {
			return err
		}
		if from != to {
			if err := dst.Remove(ctx, from); err != nil {
				return err
			}
		}
		return nil
	}()
	if from != to || !errors.Is(err, store.ErrChanged) {
		if err := robocache.At(err, robocache.Where{"file": from}); err != nil {
			return err
		}
	}
	return nil
}

// mismatchError returns the error of a file that differs from its receipt.
func (f *File) mismatchError(shard int, name, want, got string) error {
	return robocache.Malformed("commit", robocache.Where{
		"file":  name,
		"shard": shard,
	}, "the file differs from the staged one").
		Expected(want, got).
		WithHint("%s", rerunHint(shard))
}

func rerunHint(
	shard int,
) string {
	return "remove " + receiptName(shard) + ", and run the shard again"
}

// removeEmpty removes the empty folders at and below a local folder. Other stores have no folders.
func removeEmpty(uri string) {
	dir, local := store.LocalPath(uri)
	if !local {
		return
	}
	var folders []string
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, p)
		}
		return nil
	})
	for _, p := range slices.Backward(folders) {
		_ = os.Remove(p) // fails for a folder that is not empty
	}
}
