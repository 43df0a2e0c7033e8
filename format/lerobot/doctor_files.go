package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// pageLimit bounds a page and a dictionary that the doctor proves.
const pageLimit = 256 << 20

// pages proves the columns that nothing here reads: other readers open a file whole, or not at all.
// Of the tables of the metadata all, of the data where the caller wants it deep.
func (doc *doctor) pages(ctx context.Context) {
	d := doc.d
	doc.try(ctx, nil, func() error {
		tables, _, err := store.Files(
			ctx,
			d.Bytes,
			"meta",
			func(name string) bool { return strings.HasSuffix(name, ".parquet") },
		)
		for _, t := range tables {
			doc.columns(ctx, t.Name)
		}
		if !errors.Is(err, robocache.ErrUnsupported) {
			if err != nil {
				return err
			}
			return nil
		}
		doc.columns(ctx, tasksParquet) // http: what metadata has by its names
		numbered, err := d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet")
		if err != nil {
			return err
		}
		for _, name := range numbered {
			doc.columns(ctx, name)
		}
		return nil
	})
	for file := range d.tab.files() {
		if doc.opt.Deep && doc.wantsAny(ctx, d.tab.episodesOf(int32(file))) {
			doc.try(ctx, nil, func() error {
				footer, err := d.tab.footer(ctx, int32(file))
				if err != nil {
					return err
				}
				doc.columns(ctx, footer.name)
				return nil
			})
		}
	}
}

// columns proves every column of a Parquet file, page by page: one finding a column chunk.
func (doc *doctor) columns(ctx context.Context, name string) {
	where := robocache.Where{"file": name}
	err := func() error {
		r, err := doc.d.openSmall(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		f, err := pq.Open(ctx, r, nil)
		if err != nil {
			return err
		}
		doc.unreadable(ctx, pq.CheckNames(f), where)
		for g := range f.Groups {
			for _, leaf := range f.Leaves {
				if doc.failed != nil {
					return nil
				}
				err := pq.Check(ctx, r, f, g, leaf, pq.Limits{Bytes: pageLimit})
				if errors.Is(err, robocache.ErrUnsupported) ||
					errors.Is(err, robocache.ErrResourceLimit) {
					doc.found(
						robocache.SeverityWarning,
						"not-examined",
						robocache.Where{"file": name, "row_group": g, "column": leaf.Name},
						"",
						"%v",
						err,
					)
				} else {
					doc.unreadable(ctx, err, where)
				}
			}
		}
		return nil
	}()
	if !errors.Is(err, robocache.ErrNotFound) { // else opening has said so, where it is needed
		doc.unreadable(ctx, err, where)
	}
}

// videos checks every file of every camera against the rows that it must show.
func (doc *doctor) videos(ctx context.Context) {
	d := doc.d
	pool := video.NewPool(256 << 20)
	defer pool.Close()
	for i := range d.About.Features {
		f := &d.About.Features[i]
		c := d.cams[f.Key]
		if f.Kind != robocache.KindVideo || c == nil {
			continue
		}
		for file := range c.files {
			eps := c.byFile.of(int32(file))
			if len(eps) == 0 || !doc.wantsAny(ctx, eps) {
				continue
			}
			doc.try(
				ctx,
				robocache.Where{"stream": f.Key, "episodes": doc.span(eps)},
				func() error { return doc.videoFile(ctx, f, c, eps, pool) },
			)
			doc.progress(doc.rows(eps))
		}
		for e := range d.eps.n() {
			if c.fileOf(e) == unknownFile && doc.wants(e) {
				doc.badFrames(c, int32(e), d.noFramesNamed(c.key, e))
			}
		}
	}
}

func (doc *doctor) videoFile(
	ctx context.Context,
	f *robocache.Feature,
	c *camera,
	eps []int32,
	pool *video.Pool,
) error {
	layout, err := doc.d.layout(ctx, c, int(eps[0]))
	if err != nil {
		return err
	}
	file, err := doc.d.lib.Acquire(ctx, layout.path)
	if err != nil {
		return err
	}
	defer file.Release()
	doc.claims(f, layout, file.Index)
	doc.ends(f, c, eps)
	if layout.timed == nil {
		doc.drift(f, c, layout, file.Index)
	} else {
		doc.byTime(ctx, c, layout, eps)
	}
	if doc.opt.Decode {
		if err := doc.decode(ctx, f, c, layout, file, pool); err != nil {
			return err
		}
	}
	return nil
}

// codecNames are spellings that mean the same coding.
var codecNames = map[string]video.Codec{
	"avc":        video.H264,
	"avc1":       video.H264,
	"libx264":    video.H264,
	"h265":       video.HEVC,
	"libx265":    video.HEVC,
	"hev1":       video.HEVC,
	"hvc1":       video.HEVC,
	"av01":       video.AV1,
	"libsvtav1":  video.AV1,
	"libaom-av1": video.AV1,
	"mp4v":       video.MPEG4,
	"vp09":       video.VP9,
}

// claims compares what info.json says of the files with what they are.
func (doc *doctor) claims(f *robocache.Feature, l *camFile, ix *video.Index) {
	where := robocache.Where{"file": l.path, "stream": f.Key}
	entry := ix.Entries()[0]
	if r := doc.d.raw.declares(f.Key); r != nil {
		said := r.codecOf(l.path)
		norm := video.Codec(strings.ToLower(said))
		norm = cmp.Or(codecNames[string(norm)], norm)
		if said != "" && norm != entry.Codec {
			is := cmp.Or(string(entry.Codec), entry.FourCC)
			doc.found(
				robocache.SeverityWarning,
				"codec-lies",
				where,
				"fix video.codec in info.json: "+robocache.Command("convert")+" does",
				"info.json says %s, the file is %s",
				said,
				is,
			)
		}
	}
	doc.decoders(where, ix)
	if f.Height > 0 && (f.Height != entry.Height || f.Width != entry.Width) {
		doc.found(
			robocache.SeverityWarning,
			"size-lies",
			where,
			"fix the shape in info.json",
			"info.json says %d×%d (height × width), the file is %d×%d",
			f.Height,
			f.Width,
			entry.Height,
			entry.Width,
		)
	}
	if entry.Rotation != 0 {
		doc.found(
			robocache.SeverityInfo,
			"rotated",
			where,
			"",
			"the file asks to be shown turned by %d degrees",
			entry.Rotation,
		)
	}
	if n := ix.NumFrames(); n > 2 && l.timed == nil { // otherwise frame-count reports the rates
		fps := 1e9 / float64(max(1, ix.Interval()))
		if want := doc.d.About.FPS.Float(); math.Abs(fps-want) > 0.01*want {
			doc.found(
				robocache.SeverityWarning,
				"fps-lies",
				where,
				"fix fps in info.json, or resample",
				"info.json says %.6g frames a second, the file has %.6g",
				want,
				fps,
			)
		}
	}
}

// ends compares the declared ends of episodes in their video with their lengths.
func (doc *doctor) ends(f *robocache.Feature, c *camera, eps []int32) {
	if c.cols.from == nil || c.cols.to == nil {
		return
	}
	step := 1 / doc.d.About.FPS.Float()
	for _, e := range eps {
		declared, length := c.cols.to[e]-c.cols.from[e], float64(doc.d.Len(int(e)))*step
		if math.Abs(declared-length) > 0.5*step {
			w := robocache.Where{
				"file":    "meta/episodes",
				"column":  "videos/" + f.Key + "/to_timestamp",
				"episode": doc.d.eps.id(int(e)),
			}
			doc.found(
				robocache.SeverityWarning,
				"to-timestamp",
				w,
				robocache.Command("convert")+" writes both ends by the frames",
				"to − from is %.6g s, %d rows last %.6g",
				declared,
				doc.d.Len(int(e)),
				length,
			)
		}
	}
}

// byTime reports each episode whose rows have no frames in a file with another number of frames
// than rows.
func (doc *doctor) byTime(ctx context.Context, c *camera, l *camFile, eps []int32) {
	for _, e := range eps {
		if !doc.wants(int(e)) || doc.bad[int(e)] || doc.d.Len(int(e)) == 0 {
			continue
		}
		var fault error
		doc.try(ctx, nil, func() (err error) {
			_, fault, err = doc.d.matchTimes(ctx, c, l, int(e))
			return err
		})
		doc.badFrames(c, e, fault)
	}
}

// badFrames reports an episode whose rows have no frames; nil is none.
func (doc *doctor) badFrames(c *camera, e int32, fault error) {
	var bad *robocache.Error
	if !errors.As(fault, &bad) {
		return
	}
	message := bad.Msg
	if bad.Want != "" {
		message = fmt.Sprintf("%s: expected %s, found %s", bad.Msg, bad.Want, bad.Got)
	}
	doc.add(fmt.Sprint("frame-count\x00", c.key, e), robocache.Finding{
		Severity: robocache.SeverityError, Code: "frame-count", Where: bad.Where, Count: 1,
		Hint: bad.Hint, Message: message,
	})
}

// decoders reports a coding of a video file that this build does not decode.
func (doc *doctor) decoders(where robocache.Where, ix *video.Index) {
	backend, err := video.ActiveBackend()
	if err != nil {
		return // diagnose.Run reports it
	}
	for _, entry := range ix.Entries() {
		if err := backend.Supports(entry.Codec); err != nil {
			doc.found(robocache.SeverityError, "codec-unsupported", where,
				"encode the file with a codec that is read: av1, h264, hevc, mpeg4, vp9 or mjpeg",
				"the file is coded as %s: %v", cmp.Or(string(entry.Codec), entry.FourCC), err)
		}
	}
}

// drift compares the time at which each frame is shown with the time at which the format says to
// look for it.
func (doc *doctor) drift(f *robocache.Feature, c *camera, l *camFile, ix *video.Index) {
	d := doc.d
	if d.raw.major == 3 && c.cols.from == nil {
		return
	}
	scale := 1 / float64(ix.Timescale())
	step := 1 / d.About.FPS.Float()
	var largest float64
	var off, wrong, all int64
	var before float64 // error of the last frame of the episode before
	where := robocache.Where{"file": l.path, "stream": f.Key}
	order := slices.SortedStableFunc(
		slices.Values(l.shown),
		func(a, b shown) int { return cmp.Compare(a.first, b.first) },
	)
	for i, s := range order {
		e := s.episode
		id := d.eps.id(int(e))
		from := 0.0
		if d.raw.major == 3 {
			from = c.cols.from[e]
		}
		first := int(s.first)
		for k := range d.Len(int(e)) {
			pts := float64(ix.PTS(first+k)) * scale
			want := from + float64(float64(k)*step)
			diff := pts - want
			all++
			if math.Abs(diff) > math.Abs(largest) {
				largest = diff
			}
			if math.Abs(diff) > 1e-4 {
				off++
				if ix.Nearest(want) != first+k {
					wrong++
				}
			}
			if k == 0 && i > 0 && math.Abs(diff-before) > 0.5*step {
				w := robocache.Where{"file": l.path, "stream": f.Key, "episode": id}
				doc.found(
					robocache.SeverityError,
					"boundary-jump",
					w,
					"compare the first frames of the episode with its rows; record or convert it again",
					"at the start of the episode time jumps by %.3g frames: frames may belong to the episode before",
					(diff-before)/step,
				)
			}
			before = diff
		}
	}
	if off == 0 {
		return
	}
	sev, count := robocache.SeverityWarning, off
	if wrong > 0 {
		sev, count = robocache.SeverityError, wrong
	}
	doc.add("timestamp-drift\x00"+l.path, robocache.Finding{
		Severity: sev,
		Code:     "timestamp-drift",
		Where:    where,
		Count:    count,
		Message: fmt.Sprintf(
			"frames are shown up to %.3f ms (%.2f frames) from where the metadata says; %d of %d are more than 0.1 ms off, and for %d a lookup by time gives another frame",
			1e3*largest,
			largest/step,
			off,
			all,
			wrong,
		),
		Hint: "read it by frame number, as robocache does; " + robocache.Command(
			"convert",
		) + " joins the videos without drift",
	})
}

// decode decodes every frame; a group that fails is a finding, and the others go on.
func (doc *doctor) decode(
	ctx context.Context,
	f *robocache.Feature,
	c *camera,
	l *camFile,
	file *video.File,
	pool *video.Pool,
) error {
	for _, g := range video.Plan(file.Index, file.Index.All()) {
		err := pool.Decode(
			ctx,
			file,
			nil,
			[]video.Group{g},
			func(int, video.Frame) error { return nil },
		)
		if err := ctx.Err(); err != nil {
			return err
		}
		if robocache.IsFatal(err) {
			return err
		}
		if err == nil {
			continue
		}
		last := -1
		for _, ordinal := range g.Ordinals {
			e := doc.episodeAt(ctx, c, l, ordinal)
			if e < 0 || e == last {
				continue
			}
			last = e
			where := robocache.Where{
				"file": file.Path, "stream": f.Key, "frame": ordinal, "episode": doc.d.eps.id(e),
			}
			doc.add(fmt.Sprint("undecodable\x00", file.Path, "\x00", e), robocache.Finding{
				Severity: robocache.SeverityError, Code: "undecodable", Where: where, Count: 1,
				Message: err.Error(), Hint: undecodableHint(),
			})
		}
	}
	return nil
}

func undecodableHint() string {
	return "fetch the file again, or leave the episode out: " +
		robocache.Command("doctor --fix --in-place --decode --drop-bad") + " does"
}

// episodeAt returns the episode that shows a frame of a file; -1 if none does.
func (doc *doctor) episodeAt(ctx context.Context, c *camera, l *camFile, ordinal int) int {
	for _, s := range l.shown {
		first, length := int(s.first), doc.d.Len(int(s.episode))
		if l.timed != nil {
			var frames []int32
			err := func() error {
				framesByTime, err := doc.d.framesByTime(ctx, c, l, int(s.episode))
				if err != nil {
					return err
				}
				frames = framesByTime
				return nil
			}()
			if _, shows := slices.BinarySearch(frames, int32(ordinal)); err != nil || !shows {
				continue
			}
			first, length = ordinal, 1
		}
		if ordinal >= first && ordinal < first+length {
			return int(s.episode)
		}
	}
	return -1
}
