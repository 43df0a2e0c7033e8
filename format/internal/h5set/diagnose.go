package h5set

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// maxFindings bounds how many findings of one kind are listed; the last counts the rest.
const maxFindings = 100

// Diagnose looks at every stream of every episode: that it is there, has the first episode's type and shape and the episode's length, and
// can be read to its end (checksums, chunks); timestamps; numbers that are none. With Decode encoded images are decoded too.
func (s *Set) Diagnose(ctx context.Context, opt robocache.DiagnoseOptions) (out []robocache.Finding, err error) {
	defer guard.Malformed(s.Info_.Format+" diagnose", &err)
	episodes := opt.Episodes
	if episodes == nil {
		for e := range s.Episodes {
			episodes = append(episodes, e)
		}
	}
	count := map[string]int64{}
	crowded := false // one episode says it for all
	add := func(f robocache.Finding) {
		if count[f.Code]++; count[f.Code] <= maxFindings {
			out = append(out, f)
		}
	}
	for done, e := range episodes {
		if err := s.check(e); err != nil {
			return nil, err
		}
		if f := s.crowded(ctx, e); f != nil && !crowded {
			crowded = true
			add(*f)
		}
		if err := s.diagnose(ctx, e, opt.Decode, add); err != nil {
			return nil, err
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

// crowded says that memory does not hold a chunk of each stream together: who reads the streams row by row has all of them decoded for every row.
func (s *Set) crowded(ctx context.Context, e int) *robocache.Finding {
	var sum, most int64
	seen := map[*h5.Dataset]bool{}
	for i := range s.Streams {
		if d, err := s.dataset(ctx, e, i); err == nil && !seen[d] {
			seen[d] = true
			sum, most = sum+d.Together(), max(most, d.Together())
		}
	}
	room := s.cache.Budget()
	if sum <= room || most > room {
		return nil // what one chunk alone passes is refused
	}
	need := (sum*8/7)>>20 + 1
	return &robocache.Finding{Severity: robocache.SeverityInfo, Code: "chunks-above-memory", Where: s.where(e, ""),
		Message: fmt.Sprintf("a chunk of each stream takes %d bytes decoded, memory holds %d: read row by row, chunks are decoded again and again", sum, room),
		Hint:    fmt.Sprintf("a memory budget of %d MiB, fewer streams at a time, or smaller chunks (h5repack -l CHUNK=…)", need)}
}

func (s *Set) diagnose(ctx context.Context, e int, decode bool, add func(robocache.Finding)) error {
	bad := func(sev robocache.Severity, code, key, msg string) {
		add(robocache.Finding{Severity: sev, Code: code, Where: s.where(e, key), Message: msg})
	}
	if s.Episodes[e].Length == 0 {
		bad(robocache.SeverityWarning, "empty-episode", "", "the episode has no rows")
		return nil
	}
	if s.Episodes[e].Times != "" {
		if _, err := s.Times(ctx, e, ""); err != nil {
			if !Data(err) {
				return err
			}
			bad(robocache.SeverityError, "bad-timestamps", "", err.Error())
		}
	}
	for i := range s.Streams {
		st := &s.Streams[i]
		if _, err := s.dataset(ctx, e, i); err != nil {
			if !Data(err) {
				return err
			}
			bad(robocache.SeverityError, "bad-stream", st.Key, err.Error())
			continue
		}
		if err := s.readThrough(ctx, e, st, decode, bad); err != nil {
			if !Data(err) {
				return err
			}
			bad(robocache.SeverityError, "unreadable-rows", st.Key, err.Error())
		}
	}
	return nil
}

// readThrough reads a stream of an episode to its end, some rows at a time.
func (s *Set) readThrough(ctx context.Context, e int, st *Stream, decode bool, bad func(sev robocache.Severity, code, key, msg string)) error {
	size := max(st.Elements()*st.DType.Size(), 1)
	step := max(1, min(4<<20/size, 4096))
	missing := 0
	var refs []robocache.FrameRef
	var buf []byte
	notNumbers := int64(0)
	length, err := s.length(ctx, e, s.byKey[st.Key])
	if err != nil {
		return err
	}
	for at := 0; at < length; at += step {
		rows := make([]robocache.Row, min(step, length-at))
		for k := range rows {
			rows[k] = robocache.Row{Episode: e, Index: at + k}
		}
		switch st.Kind {
		case robocache.KindText:
			if _, err := s.Text(ctx, st.Key, rows); err != nil {
				return err
			}
		case robocache.KindImage:
			refs = append(refs[:0], make([]robocache.FrameRef, len(rows))...)
			done, err := s.LeaseFrames(ctx, st.Key, rows, refs)
			if err != nil {
				return err
			}
			for k := range refs {
				if refs[k].Missing {
					missing++
					continue
				}
				info, err := video.ImageSize(&refs[k])
				if err == nil && (info.Width != st.Width || info.Height != st.Height) {
					err = fmt.Errorf("an image of %d×%d, the first is %d×%d", info.Height, info.Width, st.Height, st.Width)
				}
				if err == nil && decode && refs[k].Raw == nil {
					var n int
					if n, err = video.StillBytes(info, info.Own()); err == nil {
						err = video.DecodeImage(&refs[k], info.Own(), make([]byte, n))
					}
				}
				if err != nil {
					bad(robocache.SeverityError, "bad-image", st.Key, fmt.Sprintf("row %d: %v", at+k, err))
				}
			}
			done()
		default:
			n := len(rows) * st.RowBytes()
			if cap(buf) < n {
				buf = make([]byte, n)
			}
			if err := s.Gather(ctx, st.Key, rows, buf[:n]); err != nil {
				return err
			}
			if st.DType.Float() {
				for _, v := range robocache.Float64s(nil, st.DType, buf[:n]) {
					if v-v != 0 {
						notNumbers++
					}
				}
			}
		}
	}
	if missing > 0 {
		bad(robocache.SeverityWarning, "missing-images", st.Key, fmt.Sprintf("%d rows have no image", missing))
	}
	if notNumbers > 0 {
		bad(robocache.SeverityWarning, "not-finite", st.Key, fmt.Sprintf("%d values are NaN or infinite", notNumbers))
	}
	return nil
}
