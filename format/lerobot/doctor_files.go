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

// pageLimit bounds a page or dictionary that the doctor decodes.
const pageLimit = 256 << 20

// checkPages decodes every column of the metadata tables, and of the data files if the option Deep
// is set. This finds damage in columns that RoboCache does not read, but other readers do.
func (doc *doctor) checkPages(ctx context.Context) {
	d := doc.dataset
	doc.runPart(ctx, nil, func() error {
		tables, _, err := store.Files(
			ctx,
			d.Bytes,
			"meta",
			func(name string) bool { return strings.HasSuffix(name, ".parquet") },
		)
		for _, t := range tables {
			doc.checkColumns(ctx, t.Name)
		}
		if !errors.Is(err, robocache.ErrUnsupported) {
			return err
		}
		doc.checkColumns(ctx, tasksParquet) // http cannot list, so the known names are checked
		numbered, err := d.paths.numberedFiles(ctx, "meta/episodes", episodesTemplate, ".parquet")
		if err != nil {
			return err
		}
		for _, name := range numbered {
			doc.checkColumns(ctx, name)
		}
		return nil
	})
	for file := range d.tables.fileCount() {
		if doc.options.Deep && doc.shouldCheckAny(ctx, d.tables.episodesOf(int32(file))) {
			doc.runPart(ctx, nil, func() error {
				footer, err := d.tables.footer(ctx, int32(file))
				if err != nil {
					return err
				}
				doc.checkColumns(ctx, footer.name)
				return nil
			})
		}
	}
}

// checkColumns decodes every column of a Parquet file page by page. There is one finding per
// damaged column chunk.
func (doc *doctor) checkColumns(ctx context.Context, name string) {
	where := robocache.Where{"file": name}
	err := func() error {
		r, err := doc.dataset.openSmall(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		f, err := pq.Open(ctx, r, nil)
		if err != nil {
			return err
		}
		doc.reportError(ctx, pq.CheckNames(f), where)
		for g := range f.Groups {
			for _, leaf := range f.Leaves {
				if doc.failed != nil {
					return nil
				}
				err := pq.Check(ctx, r, f, g, leaf, pq.Limits{Bytes: pageLimit})
				isTooLarge := errors.Is(err, robocache.ErrResourceLimit)
				if isTooLarge || errors.Is(err, robocache.ErrUnsupported) {
					doc.recordFault(
						robocache.SeverityWarning,
						"not-examined",
						robocache.Where{"file": name, "row_group": g, "column": leaf.Name},
						"",
						"%v",
						err,
					)
				} else {
					doc.reportError(ctx, err, where)
				}
			}
		}
		return nil
	}()
	// A missing file is not reported here. If the file is required, Open has reported it.
	if !errors.Is(err, robocache.ErrNotFound) {
		doc.reportError(ctx, err, where)
	}
}

// checkVideos checks every file of every camera against the rows that it must show.
func (doc *doctor) checkVideos(ctx context.Context) {
	d := doc.dataset
	pool := video.NewPool(256 << 20)
	defer pool.Close()
	for i := range d.About.Features {
		f := &d.About.Features[i]
		c := d.cameras[f.Key]
		if f.Kind != robocache.KindVideo || c == nil {
			continue
		}
		for file := range c.files {
			eps := c.byFile.of(int32(file))
			if len(eps) == 0 || !doc.shouldCheckAny(ctx, eps) {
				continue
			}
			doc.runPart(
				ctx,
				robocache.Where{"stream": f.Key, "episodes": doc.spanText(eps)},
				func() error { return doc.checkVideoFile(ctx, f, c, eps, pool) },
			)
			doc.addProgress(doc.rowsOf(eps))
		}
		// No file lists the episodes whose frames the metadata does not name.
		for e := range d.episodes.count() {
			if c.fileOf(e) == unknownFile && doc.isRequested(e) {
				doc.reportBadFrames(c, int32(e), d.unknownFramesError(c.key, e))
			}
		}
	}
}

// checkVideoFile checks one video file that shows the episodes eps.
func (doc *doctor) checkVideoFile(
	ctx context.Context,
	f *robocache.Feature,
	c *camera,
	eps []int32,
	pool *video.Pool,
) error {
	layout, err := doc.dataset.cameraFile(ctx, c, int(eps[0]))
	if err != nil {
		return err
	}
	file, err := doc.dataset.library.Acquire(ctx, layout.path)
	if err != nil {
		return err
	}
	defer file.Release()
	doc.checkDeclarations(f, layout, file.Index)
	doc.checkEnds(f, c, eps)
	if layout.timed == nil {
		doc.checkDrift(f, c, layout, file.Index)
	} else {
		doc.checkByTime(ctx, c, layout, eps)
	}
	if doc.options.Decode {
		if err := doc.decodeAll(ctx, f, c, layout, file, pool); err != nil {
			return err
		}
	}
	return nil
}

// codecNames maps other spellings of a codec to its name.
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

// checkDeclarations compares the declarations of info.json about a video file with the file.
func (doc *doctor) checkDeclarations(f *robocache.Feature, layout *camFile, ix *video.Index) {
	where := robocache.Where{"file": layout.path, "stream": f.Key}
	entry := ix.Entries()[0]
	if r := doc.dataset.raw.declaration(f.Key); r != nil {
		declaredCodec := r.codecOf(layout.path)
		codec := video.Codec(strings.ToLower(declaredCodec))
		codec = cmp.Or(codecNames[string(codec)], codec)
		if declaredCodec != "" && codec != entry.Codec {
			actual := cmp.Or(string(entry.Codec), entry.FourCC)
			doc.recordFault(
				robocache.SeverityWarning,
				"codec-lies",
				where,
				"fix video.codec in info.json: "+robocache.Command("convert")+" does",
				"info.json states %s, the file is %s",
				declaredCodec,
				actual,
			)
		}
	}
	doc.checkDecoders(where, ix)
	if f.Height > 0 && (f.Height != entry.Height || f.Width != entry.Width) {
		doc.recordFault(
			robocache.SeverityWarning,
			"size-lies",
			where,
			"fix the shape in info.json",
			"info.json states %d×%d (height × width), the file is %d×%d",
			f.Height,
			f.Width,
			entry.Height,
			entry.Width,
		)
	}
	if entry.Rotation != 0 {
		doc.recordFault(
			robocache.SeverityInfo,
			"rotated",
			where,
			"",
			"the file is shown rotated by %d degrees",
			entry.Rotation,
		)
	}
	// Another number of frames than rows (layout.timed) is reported as "frame-count" elsewhere, and
	// explains a different rate.
	if n := ix.NumFrames(); n > 2 && layout.timed == nil {
		fps := 1e9 / float64(max(1, ix.Interval()))
		if want := doc.dataset.About.FPS.Float(); math.Abs(fps-want) > 0.01*want {
			doc.recordFault(
				robocache.SeverityWarning,
				"fps-lies",
				where,
				"fix fps in info.json, or resample",
				"info.json states %.6g frames per second, the file has %.6g",
				want,
				fps,
			)
		}
	}
}

// checkEnds compares the declared ends of episodes in their video with their lengths.
func (doc *doctor) checkEnds(f *robocache.Feature, c *camera, eps []int32) {
	if c.cols.from == nil || c.cols.to == nil {
		return
	}
	step := 1 / doc.dataset.About.FPS.Float()
	for _, e := range eps {
		declared := c.cols.to[e] - c.cols.from[e]
		length := float64(doc.dataset.Len(int(e))) * step
		if math.Abs(declared-length) > 0.5*step {
			w := robocache.Where{
				"file":    "meta/episodes",
				"column":  "videos/" + f.Key + "/to_timestamp",
				"episode": doc.dataset.episodes.indexAt(int(e)),
			}
			doc.recordFault(
				robocache.SeverityWarning,
				"to-timestamp",
				w,
				robocache.Command("convert")+" writes both ends by the frames",
				"to − from is %.6g s, %d rows last %.6g",
				declared,
				doc.dataset.Len(int(e)),
				length,
			)
		}
	}
}

// checkByTime reports the episodes of a file whose rows have no frames. It is used for files whose
// number of frames differs from their number of rows, because frames are found by time there.
func (doc *doctor) checkByTime(ctx context.Context, c *camera, layout *camFile, eps []int32) {
	for _, e := range eps {
		if !doc.isRequested(int(e)) || doc.unreadable[int(e)] || doc.dataset.Len(int(e)) == 0 {
			continue
		}
		var fault error
		doc.runPart(ctx, nil, func() (err error) {
			_, fault, err = doc.dataset.matchTimes(ctx, c, layout, int(e))
			return err
		})
		doc.reportBadFrames(c, e, fault)
	}
}

// reportBadFrames reports an episode whose rows have no frames; a nil fault has no effect.
func (doc *doctor) reportBadFrames(c *camera, e int32, fault error) {
	var bad *robocache.Error
	if !errors.As(fault, &bad) {
		return
	}
	message := bad.Msg
	if bad.Want != "" {
		message = fmt.Sprintf("%s: expected %s, found %s", bad.Msg, bad.Want, bad.Got)
	}
	doc.addFinding(fmt.Sprint("frame-count\x00", c.key, e), robocache.Finding{
		Severity: robocache.SeverityError, Code: "frame-count", Where: bad.Where, Count: 1,
		Hint: bad.Hint, Message: message,
	})
}

// checkDecoders reports a codec of a video file that this build cannot decode.
func (doc *doctor) checkDecoders(where robocache.Where, ix *video.Index) {
	backend, err := video.ActiveBackend()
	if err != nil {
		return // diagnose.Run reports it
	}
	for _, entry := range ix.Entries() {
		if err := backend.Supports(entry.Codec); err != nil {
			doc.recordFault(robocache.SeverityError, "codec-unsupported", where,
				"encode the file with a codec that is read: av1, h264, hevc, mpeg4, vp9 or mjpeg",
				"the file is coded as %s: %v", cmp.Or(string(entry.Codec), entry.FourCC), err)
		}
	}
}

// drift counts frames that are shown at another time than the metadata states.
type drift struct {
	largest float64 // difference in seconds, with its sign
	frames  int64
	off     int64 // frames that differ by more than driftTolerance
	wrong   int64 // frames of these that a lookup by time does not find
}

// driftTolerance is the difference in seconds below which a frame counts as on time.
const driftTolerance = 1e-4

// checkDrift compares the time at which each frame is shown with the time at which the metadata
// places it.
func (doc *doctor) checkDrift(f *robocache.Feature, c *camera, layout *camFile, ix *video.Index) {
	d := doc.dataset
	if d.raw.major == 3 && c.cols.from == nil {
		return
	}
	scale := 1 / float64(ix.Timescale())
	step := 1 / d.About.FPS.Float()
	var found drift
	var before float64 // time difference of the previous frame
	order := slices.SortedStableFunc(
		slices.Values(layout.episodes),
		func(a, b shown) int { return cmp.Compare(a.first, b.first) },
	)
	for i, s := range order {
		e := int(s.episode)
		from := 0.0
		if d.raw.major == 3 {
			from = c.cols.from[e]
		}
		for k := range d.Len(e) {
			frame := int(s.first) + k
			want := from + float64(float64(k)*step)
			shown := float64(ix.PTS(frame)) * scale
			diff := shown - want
			found.frames++
			if math.Abs(diff) > math.Abs(found.largest) {
				found.largest = diff
			}
			if math.Abs(diff) > driftTolerance {
				found.off++
				if ix.Nearest(want) != frame {
					found.wrong++
				}
			}
			startsEpisode := k == 0 && i > 0
			if startsEpisode && math.Abs(diff-before) > 0.5*step {
				id := d.episodes.indexAt(e)
				doc.recordFault(
					robocache.SeverityError,
					"boundary-jump",
					robocache.Where{"file": layout.path, "stream": f.Key, "episode": id},
					"compare the first frames of the episode with its rows; record or convert "+
						"it again",
					"the time jumps by %.3g frames at the start of the episode: frames may "+
						"belong to the previous episode",
					(diff-before)/step,
				)
			}
			before = diff
		}
	}
	if found.off > 0 {
		doc.reportDrift(&found, layout.path, f.Key, step)
	}
}

// reportDrift reports the drift of a video file. step is the duration of a frame in seconds.
func (doc *doctor) reportDrift(found *drift, file, stream string, step float64) {
	severity := robocache.SeverityWarning
	count := found.off
	if found.wrong > 0 {
		severity = robocache.SeverityError
		count = found.wrong
	}
	doc.addFinding("timestamp-drift\x00"+file, robocache.Finding{
		Severity: severity,
		Code:     "timestamp-drift",
		Where:    robocache.Where{"file": file, "stream": stream},
		Count:    count,
		Message: fmt.Sprintf(
			"frames are shown up to %.3f ms (%.2f frames) from the time in the metadata; %d of "+
				"%d are more than 0.1 ms off, and for %d a lookup by time finds another frame",
			1e3*found.largest,
			found.largest/step,
			found.off,
			found.frames,
			found.wrong,
		),
		Hint: "read it by frame number, as robocache does; " +
			robocache.Command("convert") + " joins the videos without drift",
	})
}

// decodeAll decodes every frame. A decode group that fails becomes a finding, and the others are
// still decoded.
func (doc *doctor) decodeAll(
	ctx context.Context,
	f *robocache.Feature,
	c *camera,
	layout *camFile,
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
			e := doc.episodeAt(ctx, c, layout, ordinal)
			if e < 0 || e == last {
				continue
			}
			last = e
			where := robocache.Where{
				"file":    file.Path,
				"stream":  f.Key,
				"frame":   ordinal,
				"episode": doc.dataset.episodes.indexAt(e),
			}
			doc.addFinding(fmt.Sprint("undecodable\x00", file.Path, "\x00", e), robocache.Finding{
				Severity: robocache.SeverityError, Code: "undecodable", Where: where, Count: 1,
				Message: err.Error(), Hint: undecodableHint(),
			})
		}
	}
	return nil
}

// undecodableHint returns the hint about images that cannot be decoded.
func undecodableHint() string {
	return "fetch the file again, or leave the episode out: " +
		robocache.Command("doctor --fix --in-place --decode --drop-bad") + " does"
}

// episodeAt returns the episode that shows a frame of a file, or -1.
func (doc *doctor) episodeAt(ctx context.Context, c *camera, layout *camFile, ordinal int) int {
	for _, s := range layout.episodes {
		first := int(s.first)
		length := doc.dataset.Len(int(s.episode))
		if layout.timed != nil {
			frames, err := doc.dataset.framesByTime(ctx, c, layout, int(s.episode))
			if err != nil {
				continue // checkByTime reports the error
			}
			if _, isShown := slices.BinarySearch(frames, int32(ordinal)); !isShown {
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
