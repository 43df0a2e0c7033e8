package h5set

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// maxFindings limits the findings of one kind. The last one contains the count of the rest.
const maxFindings = 100

// Diagnose checks every stream of every episode. It compares presence, type, shape and length with
// those of the other episodes, reads the data to the end (checksums, chunks), and checks the
// timestamps. With Decode it also decodes encoded images. Package diagnose looks for NaN.
func (s *Set) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover(s.About.Format+" diagnose", &err)
	episodes := reader.Episodes(opt.Episodes, len(s.Episodes))
	count := map[string]int64{}
	thrashes := false // reported once for the whole set
	add := func(f robocache.Finding) {
		if count[f.Code]++; count[f.Code] <= maxFindings {
			out = append(out, f)
		}
	}
	for done, e := range episodes {
		if err := s.op.Episode(len(s.Episodes), e); err != nil {
			return out, err
		}
		if f, err := s.findThrashing(ctx, e); err != nil {
			return out, err
		} else if f != nil && !thrashes {
			thrashes = true
			add(*f)
		}
		if err := s.diagnoseEpisode(ctx, e, opt.Decode, add); err != nil {
			return out, err
		}
		if opt.Progress != nil {
			opt.Progress(int64(done+1), int64(len(episodes)))
		}
	}
	for i := range out {
		if n := count[out[i].Code]; n > maxFindings {
			out[i].Count = n
		}
	}
	return out, nil
}

// findThrashing returns a finding if memory cannot hold one chunk of each stream. Row-by-row reads
// of all streams would then decode the chunks again for every row.
func (s *Set) findThrashing(ctx context.Context, e int) (*robocache.Finding, error) {
	var sum, most int64
	seen := map[*h5.Dataset]bool{}
	for i := range s.Streams {
		if _, err := Tolerate(func() error {
			if d, err := s.episodeDataset(ctx, e, i); err != nil {
				return err
			} else if !seen[d] {
				seen[d] = true
				sum, most = sum+d.Together(), max(most, d.Together())
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	room := s.cache.Budget()
	if sum <= room || most > room {
		return nil, nil // a chunk that does not fit by itself is an error of the read
	}
	need := (sum*8/7)>>20 + 1
	return &robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "chunks-above-memory",
		Where:    s.where(e, ""),
		Message: fmt.Sprintf(
			"a chunk of each stream takes %d bytes decoded, memory holds %d: read row by row, "+
				"chunks are decoded again and again",
			sum,
			room,
		),
		Hint: fmt.Sprintf(
			"a memory budget of %d MiB, fewer streams at a time, or smaller chunks (h5repack -l "+
				"CHUNK=…)",
			need,
		),
	}, nil
}

func (s *Set) diagnoseEpisode(
	ctx context.Context,
	e int,
	decode bool,
	add func(robocache.Finding),
) error {
	bad := func(sev robocache.Severity, code, key, msg string) {
		add(robocache.Finding{Severity: sev, Code: code, Where: s.where(e, key), Message: msg})
	}
	try := func(code, key string, fn func() error) (bool, error) {
		err, failed := Tolerate(fn)
		if failed != nil {
			return false, failed
		}
		if err != nil {
			bad(robocache.SeverityError, code, key, err.Error())
		}
		return err == nil, nil
	}
	if s.Episodes[e].Length == 0 {
		bad(robocache.SeverityWarning, "empty-episode", "", "the episode has no rows")
		return nil
	}
	if s.Episodes[e].Times != "" || s.rowTimes != "" {
		if _, err := try("bad-timestamps", "", func() error {
			if _, err := s.Times(ctx, e, ""); err != nil {
				return err
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for i := range s.Streams {
		st := &s.Streams[i]
		if s.lacksStream(i, e) {
			continue // reported when the dataset was opened
		}
		if st.Clock != "" && st.times != "" {
			ok, err := try("bad-timestamps", st.Key, func() error {
				_, err := s.Times(ctx, e, st.Key)
				return err
			})
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
		}
		ok, err := try("bad-stream", st.Key, func() error {
			_, err := s.episodeDataset(ctx, e, i)
			return err
		})
		if err != nil {
			return err
		}
		if ok {
			if _, err := try(
				"unreadable-rows",
				st.Key,
				func() error { return s.readThrough(ctx, e, i, decode, bad) },
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// readThrough reads a stream of an episode to its end, a few rows at a time.
func (s *Set) readThrough(
	ctx context.Context,
	e, stream int,
	decode bool,
	bad func(sev robocache.Severity, code, key, msg string),
) error {
	st := &s.Streams[stream]
	size := max(st.Elements()*st.DType.Size(), 1)
	step := max(1, min(4<<20/size, 4096))
	missing := 0
	length, err := s.rowCount(ctx, e, stream)
	if err != nil {
		return err
	}
	for at := 0; at < length; at += step {
		rows := reader.Rows(e, at, min(at+step, length))
		switch st.Kind {
		case robocache.KindText:
			if _, err := s.Text(ctx, st.Key, rows); err != nil {
				return err
			}
		case robocache.KindImage:
			refs := make([]robocache.FrameRef, len(rows))
			done, err := s.LeaseFrames(ctx, st.Key, rows, refs)
			if err != nil {
				return err
			}
			for k := range refs {
				if refs[k].Missing {
					missing++
				} else if err := st.checkImage(&refs[k], decode); err != nil {
					bad(
						robocache.SeverityError,
						"bad-image",
						st.Key,
						fmt.Sprintf("row %d: %v", at+k, err),
					)
				}
			}
			done()
		default:
			b := make([]byte, len(rows)*st.RowBytes())
			if err := s.Gather(ctx, st.Key, rows, b); err != nil {
				return err
			}
		}
	}
	if missing > 0 {
		bad(
			robocache.SeverityWarning,
			"missing-images",
			st.Key,
			fmt.Sprintf("%d rows have no image", missing),
		)
	}
	return nil
}

// checkImage returns an error if an image is damaged or has another size than the stream.
func (st *Stream) checkImage(ref *robocache.FrameRef, decode bool) error {
	info, err := video.ImageSize(ref)
	if err == nil && (info.Width != st.Width || info.Height != st.Height) {
		err = fmt.Errorf(
			"an image of %d×%d, the first is %d×%d",
			info.Height,
			info.Width,
			st.Height,
			st.Width,
		)
	}
	if err != nil || !decode || ref.Raw != nil {
		return err
	}
	n, err := video.StillBytes(info, info.Own())
	if err != nil {
		return err
	}
	return video.DecodeImage(ref, info.Own(), make([]byte, n))
}
