package bag

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// reel is a topic of video packets in one recording: a film of what can be decoded, and which messages its images are.
type reel struct {
	film    *video.VirtualMP4 // nil where there is no image
	image   []int32           // of each message; -1 none
	message []int32           // of each image
	version string
	remote  bool // reading waits for a store
	absent  int  // messages without an image
}

type reelKey struct{ rec, topic int }

func (r *reel) bytes() int64 {
	n := 4*int64(len(r.image)+len(r.message)) + 300
	if r.film != nil {
		n += r.film.MemoryBytes()
	}
	return n
}

// nominal is the rate that films say of themselves; the images' times are the messages' timestamps.
var nominal = robocache.Rate{Num: 30, Den: 1}

// Video holds the films of the topics whose messages are packets of video.
func (d *Dataset) Video() *video.Library { return d.lib }

// filmPath names a film as a file of the dataset.
func (d *Dataset) filmPath(k reelKey) string {
	return d.pool.recs[k.rec].Name + "#" + d.topics[k.topic].name
}

// openFilm opens a film by its name.
func (d *Dataset) openFilm(ctx context.Context, path string) (_ robocache.Ranged, err error) {
	defer guard.Malformed("film", &err)
	k, ok := d.films[path]
	if !ok {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "film", Where: robocache.Where{"file": path}, Msg: "no such film"}
	}
	r, err := d.reel(ctx, k)
	if err != nil {
		return nil, err
	}
	if r.film == nil {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "film", Where: robocache.Where{"file": path}, Msg: "no message holds an image that can be decoded"}
	}
	return &filmFile{d: d, key: k, reel: r}, nil
}

// reel lays a topic of a recording out. It is made once, of all its messages.
func (d *Dataset) reel(ctx context.Context, k reelKey) (*reel, error) {
	r, err := d.reels.Get(ctx, k, func() (*reel, int64, error) {
		r, err := d.loadReel(ctx, k)
		if err != nil {
			return nil, 0, err
		}
		return r, r.bytes(), nil
	})
	return r, robocache.At(err, robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": d.topics[k.topic].key})
}

func (d *Dataset) loadReel(ctx context.Context, k reelKey) (*reel, error) {
	t := d.topics[k.topic]
	var coding video.Codec // of this recording: in others it may be another
	stream, err := video.NewStream(t.dec.Codec(), video.Limits{})
	if err != nil {
		return nil, err
	}
	r := &reel{}
	var wrong int64
	var first error
	err = d.pool.use(ctx, k.rec, func(s Storage) error {
		ix, err := s.Index(ctx, t.place[k.rec])
		if err != nil {
			return err
		}
		r.remote = s.Remote()
		r.image = make([]int32, len(ix.Log))
		for i := range r.image {
			r.image[i] = -1
		}
		next := 0
		return s.Messages(ctx, t.place[k.rec], 0, len(ix.Log), func(i int, m *Message) error {
			if i != next {
				stream.Lost()
			}
			next = i + 1
			packet, own, err := t.dec.Packet(m.Data)
			if err == nil && len(packet) > 0 && own != "" && own != coding {
				if coding != "" {
					return robocache.At(&robocache.Error{Class: robocache.ErrUnsupported, Op: "film", Msg: fmt.Sprintf("the coding changes from %s to %s", coding, own), Hint: "cut the recording there"}, robocache.Where{"index": i})
				}
				if coding = own; own != t.dec.Codec() {
					if stream, err = video.NewStream(own, video.Limits{}); err != nil {
						return err
					}
				}
			}
			if err != nil {
				stream.Lost()
			} else if len(packet) > 0 {
				var n int
				if n, err = stream.Add(packet); n >= 0 {
					r.image[i] = int32(n)
					r.message = append(r.message, int32(i))
				}
			}
			if err != nil && !errors.Is(err, robocache.ErrMalformed) {
				return robocache.At(err, robocache.Where{"index": i})
			}
			if err != nil {
				if wrong++; first == nil {
					first = robocache.At(err, robocache.Where{"index": i})
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if wrong > 0 && d.opt.Strict {
		return nil, first
	}
	r.absent = len(r.image) - len(r.message)
	if w, h := stream.Size(); len(r.message) > 0 {
		if f := &t.fields[0].Feature; w != f.Width || h != f.Height {
			d.notice(-1, robocache.Finding{Severity: robocache.SeverityWarning, Code: "image-size-differs", Where: robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": t.key},
				Message: fmt.Sprintf("the images are %d×%d, those of the recordings before %d×%d", w, h, f.Width, f.Height), Hint: "read with one image_size for all", Count: int64(len(r.message))})
		}
	}
	d.tellReel(k, r, stream, wrong, first)
	if len(r.message) == 0 {
		return r, nil
	}
	stream.SetColour(d.colour(t))
	if r.film, err = stream.MP4(nominal); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.film.Head()) // the size of each packet, the key images and the parameter sets
	r.version = "film-" + hex.EncodeToString(sum[:12])
	return r, nil
}

// tellReel notes what a reel lacks.
func (d *Dataset) tellReel(k reelKey, r *reel, stream *video.Stream, wrong int64, first error) {
	where := robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": d.topics[k.topic].key}
	say := func(sev robocache.Severity, code string, n int, format, hint string) {
		if n > 0 {
			d.notice(-1, robocache.Finding{Severity: sev, Code: code, Where: where, Message: fmt.Sprintf(format, n), Hint: hint, Count: int64(n)})
		}
	}
	early, cut := stream.Absent()
	say(robocache.SeverityWarning, "video-before-key", early, "%d images come before the first key frame, and cannot be decoded: their rows have none", "begin recording with a key frame")
	say(robocache.SeverityError, "video-cut", cut, "%d images follow one that is missing, up to the next key frame: they cannot be decoded, their rows have none", "more key images; a queue that drops no messages")
	if len(r.message) == 0 && early == 0 && wrong == 0 {
		say(robocache.SeverityWarning, "video-without-images", len(r.image), "none of the %d messages holds an image: the rows have none", "")
	}
	if wrong > 0 {
		d.notice(-1, robocache.Finding{Severity: robocache.SeverityError, Code: "malformed-message", Where: where, Message: fmt.Sprintf("%d messages hold no packet that can be read; the first: %v", wrong, first), Count: wrong})
	}
}

// filmFile is a film as a file: its samples are read from the messages.
type filmFile struct {
	d    *Dataset
	key  reelKey
	reel *reel
}

func (f *filmFile) Size() int64     { return f.reel.film.Size() }
func (f *filmFile) Version() string { return f.reel.version }
func (f *filmFile) Close() error    { return nil }

// Remote says that packets are worth fetching before they are decoded.
func (f *filmFile) Remote() bool { return f.reel.remote }

func (f *filmFile) ReadAt(ctx context.Context, p []byte, off int64) (err error) {
	defer guard.Malformed("film", &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	d, r := f.d, f.reel
	t := d.topics[f.key.topic]
	return r.film.ReadAt(p, off, func(first, last int, yield func(int, []byte) error) error {
		return d.pool.use(ctx, f.key.rec, func(s Storage) error {
			return s.Messages(ctx, t.place[f.key.rec], int(r.message[first]), int(r.message[last])+1, func(i int, m *Message) error {
				if r.image[i] < 0 {
					return nil
				}
				packet, _, err := t.dec.Packet(m.Data)
				if err != nil {
					return err
				}
				return robocache.At(yield(int(r.image[i]), packet), robocache.Where{"index": i})
			})
		})
	})
}

// filmed gives the image of each row of a topic of packets: fn gets its number in the film at path; -1 where the row has none.
func (d *Dataset) filmed(ctx context.Context, s *stream, f *robocache.Feature, want []robocache.Row, fn func(i int, path string, image int)) error {
	return runs(want, func(ep, from, to int) error {
		e, err := d.episode(ep)
		if err != nil {
			return err
		}
		tr, err := d.track(ctx, ep, s.topic, false)
		if err != nil {
			return err
		}
		rows := &tr.clocks[s.clock]
		for i := from; i < to; i++ {
			if err := d.checkRow(f, rows, want[i]); err != nil {
				return err
			}
		}
		k := reelKey{e.rec, s.topic}
		r, err := d.reel(ctx, k)
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": ep})
		}
		path := d.filmPath(k)
		for i := from; i < to; i++ {
			fn(i, path, int(r.image[rows.message(want[i].Index)]))
		}
		return nil
	})
}

// findFilms names the films; where every message was read, it also finds whether each has an image.
func (d *Dataset) findFilms(ctx context.Context, all bool) error {
	for i, t := range d.topics {
		if t.dec.Codec() == "" {
			continue
		}
		t.blank = all
		for rec, place := range t.place {
			if place < 0 {
				continue
			}
			k := reelKey{rec, i}
			d.films[d.filmPath(k)] = k
			if !all || t.counts[rec] == 0 {
				continue
			}
			r, err := d.reel(ctx, k)
			if err != nil {
				if fatal(err) || d.opt.Strict {
					return err
				}
				d.notice(-1, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-video", Where: robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key}, Message: err.Error()})
				t.gaps = true
				continue
			}
			t.gaps = t.gaps || r.absent > 0
			t.blank = t.blank && r.film == nil
		}
	}
	return nil
}

// checkFilms looks at the films of an episode, and where asked decodes all of their images.
func (d *Dataset) checkFilms(ctx context.Context, ep int, decode bool) (out []robocache.Finding, err error) {
	e, err := d.episode(ep)
	if err != nil {
		return nil, err
	}
	for i, t := range d.topics {
		if t.dec.Codec() == "" || t.place[e.rec] < 0 {
			continue
		}
		k := reelKey{e.rec, i}
		err := func() error {
			r, err := d.reel(ctx, k)
			if err != nil || r.film == nil || !decode {
				return err
			}
			f, err := d.lib.Acquire(ctx, d.filmPath(k))
			if err != nil {
				return err
			}
			defer f.Release()
			pool := video.NewPool(d.opt.Budget / 16)
			defer pool.Close()
			return pool.Decode(ctx, f, nil, video.Plan(f.Index, f.Index.All()), func(int, video.Frame) error { return nil })
		}()
		if err != nil {
			if fatal(err) || ctx.Err() != nil {
				return nil, err
			}
			out = append(out, robocache.Finding{Severity: robocache.SeverityError, Code: "bad-video", Where: robocache.Where{"episode": ep, "stream": t.key}, Message: err.Error(), Hint: "record it anew"})
		}
	}
	return out, nil
}
