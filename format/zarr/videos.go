package zarr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	bufferFolder = "replay_buffer.zarr" // in recordings of a real robot, next to videos/
	videosFolder = "videos"
)

// cameras are the mp4 files next to a replay buffer: videos/<episode>/<camera>.mp4.
type cameras struct {
	st    store.Store
	close bool // st is not the store of the buffer, so it is closed separately
	lib   *video.Library
	cams  map[string]*camera
}

// camera is a stream of images with one file per episode.
type camera struct {
	f     *robocache.Feature
	files []string // by episode; "" if there is no file

	mu   sync.Mutex
	maps map[int]*frameMap // maps of the files that were read, by episode
}

// frameMap maps the rows of an episode to the frames of its file.
type frameMap struct {
	frames        int
	interval      int64 // median time between two frames, ns
	step          int64 // mean time between two rows, ns; 0 unless byTime is set
	height, width int
	byTime        []int32 // frame of each row; nil means that row k shows frame k
}

// Video returns the library of the mp4 files next to the buffer.
func (d *Dataset) Video() *video.Library { return d.cameras.lib }

func newCameras(st store.Store, budget int64) cameras {
	open := func(ctx context.Context, name string) (robocache.Ranged, error) {
		return st.Open(ctx, name)
	}
	return cameras{
		st:   st,
		lib:  video.NewLibrary(open, max(budget/8, smallestBudget)),
		cams: map[string]*camera{},
	}
}

// findVideos adds the cameras in videos/. A failure does not affect the other streams of the
// buffer.
func (d *Dataset) findVideos(ctx context.Context) error {
	list, links, err := store.Files(
		ctx,
		d.cameras.st,
		videosFolder,
		func(name string) bool { return path.Ext(name) == ".mp4" },
	)
	if errors.Is(err, robocache.ErrUnsupported) {
		return nil // http cannot list
	}
	if err != nil {
		return err
	}
	d.About.Findings = append(d.About.Findings, store.Findings(links, "link-not-followed")...)
	n := d.About.Episodes
	var beyond int64
	for _, e := range list {
		parts := strings.Split(e.Name, "/")
		if len(parts) != 3 {
			continue
		}
		episode, err := strconv.Atoi(parts[1])
		if err != nil || episode < 0 {
			continue
		}
		if episode >= n {
			beyond++
			continue
		}
		key := cameraKey(strings.TrimSuffix(parts[2], ".mp4"))
		c := d.cameras.cams[key]
		if c == nil {
			if len(d.cameras.cams) >= 256 {
				return tooMany("more than 256 cameras in videos/")
			}
			c = &camera{files: make([]string, n), maps: map[int]*frameMap{}}
			d.cameras.cams[key] = c
		}
		if other := c.files[episode]; other != "" {
			return robocache.At(
				malformed("two videos of one camera: %s, %s", other, e.Name),
				robocache.Where{"stream": key, "episode": episode},
			)
		}
		c.files[episode] = e.Name
	}
	if beyond > 0 {
		d.addFinding(
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "video-beyond",
				Where:    robocache.Where{"file": videosFolder},
				Message: fmt.Sprintf(
					"%d videos are of episodes that the buffer does not have",
					beyond,
				),
				Count: beyond,
				Hint:  "an episode was dropped from the buffer without its videos",
			},
		)
	}
	for _, k := range slices.Sorted(maps.Keys(d.cameras.cams)) {
		d.addCamera(ctx, k, d.cameras.cams[k])
	}
	return ctx.Err()
}

// cameraKey returns the key of a camera. diffusion_policy names the images of camera 0 camera_0.
func cameraKey(stem string) string {
	if _, err := strconv.Atoi(stem); err == nil {
		stem = "camera_" + stem
	}
	return "observation." + stem
}

// maxSizedFiles is the number of files of a camera that are opened to find the most common size.
const maxSizedFiles = 16

// addCamera describes a camera by the most common size of its files.
func (d *Dataset) addCamera(ctx context.Context, key string, c *camera) {
	if d.views[key] != nil {
		delete(d.cameras.cams, key)
		d.addFinding(robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "key-twice",
			Where:    robocache.Where{"stream": key},
			Message:  "the buffer has images of this name; the videos beside it are left out",
		})
		return
	}
	var files []string
	for _, name := range c.files {
		if name != "" {
			files = append(files, name)
		}
	}
	type form struct {
		height, width int
		codec         string
	}
	votes := map[form]int{}
	var usual form
	var failed error
	for k := range min(len(files), maxSizedFiles) {
		file, err := d.cameras.lib.Acquire(ctx, files[k*len(files)/min(len(files), maxSizedFiles)])
		if err != nil {
			failed = err
			continue
		}
		if e := file.Index.Entries(); len(e) > 0 {
			f := form{e[0].Height, e[0].Width, string(e[0].Codec)}
			if votes[f]++; votes[f] > votes[usual] {
				usual = f
			}
		}
		file.Release()
	}
	if usual.height == 0 {
		delete(d.cameras.cams, key)
		d.addFinding(robocache.Finding{
			Severity:     robocache.SeverityError,
			Code:         "bad-video",
			Where:        robocache.Where{"stream": key},
			Message:      fmt.Sprintf("no video of this camera can be read: %v", failed),
			Hint:         "fetch videos/ again",
			NotDelivered: key,
			Class:        "malformed",
		})
		return
	}
	d.About.Features = append(d.About.Features, robocache.Feature{
		Key:      key,
		Kind:     robocache.KindVideo,
		DType:    robocache.Uint8,
		FPS:      d.rate,
		Codec:    usual.codec,
		Height:   usual.height,
		Width:    usual.width,
		Channels: 3,
		Shape:    []int{usual.height, usual.width, 3},
	})
}

// reportLacking adds a finding for each episode that has no video of a camera.
func (d *Dataset) reportLacking() {
	var lacking reader.LackingFindings
	for _, key := range slices.Sorted(maps.Keys(d.cameras.cams)) {
		c := d.cameras.cams[key]
		for e, name := range c.files {
			if name == "" && d.Len(e) > 0 {
				where := robocache.Where{"episode": e, "file": videosFolder, "stream": key}
				lacking.Add(c.f, where, "video of the camera")
			}
		}
	}
	d.About.Findings = append(d.About.Findings, lacking.List()...)
}

// Lacks reports whether an episode has no video of a camera that other episodes have.
func (d *Dataset) Lacks(episode int, key string) bool {
	c := d.cameras.cams[key]
	return c != nil && episode >= 0 && episode < len(c.files) && c.files[episode] == ""
}

// linkFeatures sets the pointers from cameras to features, after the list of features is complete.
func (s *cameras) linkFeatures(info *robocache.Info) {
	for key, c := range s.cams {
		c.f = info.Feature(key)
	}
}

// frameMap finds the frames of an episode's rows. Row k shows frame k if the file has as many
// frames as the episode has rows. Otherwise each row shows the frame within half a frame of its
// time since the first row. If a row has none, the whole episode is malformed.
func (d *Dataset) frameMap(ctx context.Context, c *camera, episode int) (*frameMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.maps[episode]; r != nil {
		return r, nil
	}
	name, rows := c.files[episode], d.Len(episode)
	where := robocache.Where{"stream": c.f.Key, "episode": episode, "file": name}
	file, err := d.cameras.lib.Acquire(ctx, name)
	if err := robocache.At(err, where); err != nil {
		return nil, err
	}
	defer file.Release()
	ix := file.Index
	r := &frameMap{frames: ix.NumFrames(), interval: ix.Interval()}
	if e := ix.Entries(); len(e) > 0 {
		r.height, r.width = e[0].Height, e[0].Width
	}
	if r.frames != rows && rows > 0 {
		counts := fmt.Sprintf("the video has %d frames for %d rows", r.frames, rows)
		times, err := d.Times(ctx, episode, "")
		if err != nil {
			return nil, robocache.NewError(
				robocache.Classify(err),
				"zarr video",
				where,
				"%s, and without a rate the frame of a row is unknown",
				counts,
			).
				WithCause(err).
				WithHint("say the rate of the rows: %s", robocache.Option("rows_hz", 10))
		}
		r.step = (times[rows-1] - times[0]) / int64(max(rows-1, 1))
		within := video.HalfFrame(r.interval, video.MedianStep(times))
		var none *video.NoFrame
		r.byTime, none = ix.FramesOfRows(sinceFirst(times, ix), within)
		if none != nil {
			where["row"] = none.Row
			return nil, robocache.Malformed("zarr video", where, "%s, and %s", counts, none.Msg).
				Expected(none.Want, none.Got).WithHint("%s", video.NoFrameHint())
		}
	}
	c.maps[episode] = r
	return r, nil
}

// sinceFirst shifts times so that the first time equals the time of the file's first frame. A time
// that does not fit into int64 becomes a time without a frame.
func sinceFirst(times []int64, ix *video.Index) []int64 {
	begin := int64(0)
	if ix.NumFrames() > 0 {
		begin = ix.TimeNS(0)
	}
	out := make([]int64, len(times))
	for i, t := range times {
		since := t - times[0]
		if (since < 0) != (t < times[0]) || since > math.MaxInt64/2 {
			since = math.MaxInt64 / 2
		}
		out[i] = begin + since
	}
	return out
}

// isOtherRate reports whether the rate of the frames differs from the rate of the rows by more than
// a twentieth.
func (r *frameMap) isOtherRate() bool {
	return r.byTime != nil &&
		float64(max(r.step, r.interval)) > 1.05*float64(min(r.step, r.interval))
}

// videoFrames finds the frames of a camera for rows.
func (d *Dataset) videoFrames(
	ctx context.Context,
	c *camera,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	if _, err := d.arrayRows(nil, rows); err != nil {
		return err
	}
	for i, row := range rows {
		name := c.files[row.Episode]
		if name == "" {
			return op.Lacks(robocache.Where{"stream": c.f.Key, "episode": row.Episode})
		}
		k := row.Index
		if r, err := d.frameMap(ctx, c, row.Episode); err != nil {
			return err
		} else if r.byTime != nil {
			k = int(r.byTime[row.Index])
		}
		out[i] = robocache.FrameRef{Path: name, Ordinal: k}
	}
	return nil
}

// checkVideos compares the files of the given episodes with their rows.
func (d *Dataset) checkVideos(ctx context.Context, eps []int) (out []robocache.Finding, err error) {
	for _, key := range slices.Sorted(maps.Keys(d.cameras.cams)) {
		c := d.cameras.cams[key]
		var timed int64
		for _, e := range eps {
			if c.files[e] == "" || len(out) >= maxFindings {
				continue // already reported by Open
			}
			f, otherRate, err := d.checkVideo(ctx, c, e)
			if err != nil {
				return out, err
			}
			if otherRate {
				timed++
			}
			if f != nil {
				f.Where = robocache.Where{"stream": key, "episode": e, "file": c.files[e]}
				out = append(out, *f)
			}
		}
		if timed > 0 {
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "video-rate",
				Where:    robocache.Where{"stream": key},
				Count:    timed,
				Message: fmt.Sprintf(
					"%d videos run at another rate than the rows: a row has the frame at its time",
					timed,
				),
			})
		}
	}
	return out, nil
}

// checkVideo compares the file of an episode with its rows. otherRate reports that its frames are
// found by time, at another rate than that of the rows.
func (d *Dataset) checkVideo(
	ctx context.Context,
	c *camera,
	episode int,
) (f *robocache.Finding, otherRate bool, err error) {
	r, err := d.frameMap(ctx, c, episode)
	if robocache.IsFatal(err) {
		return f, otherRate, err
	}
	if err := ctx.Err(); err != nil {
		return f, otherRate, err
	}
	bad := (*robocache.Error)(nil)
	switch {
	case err != nil && errors.As(err, &bad) && bad.Op == "zarr video":
		msg := bad.Msg
		if bad.Want != "" {
			msg += fmt.Sprintf(
				" (row %v: expected %s, found %s)",
				bad.Where["row"],
				bad.Want,
				bad.Got,
			)
		}
		return &robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "frame-count",
			Message:  msg,
			Count:    1,
			Hint:     bad.Hint,
		}, false, nil
	case err != nil:
		return &robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "bad-video",
			Message:  err.Error(),
			Hint:     "fetch the file again",
		}, false, nil
	case r.frames > 0 && (r.height != c.f.Height || r.width != c.f.Width):
		return &robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "bad-video",
			Hint:     "encode the file again in the size of the others",
			Message: fmt.Sprintf(
				"frames of %d×%d (height × width), those of most episodes are %d×%d",
				r.height,
				r.width,
				c.f.Height,
				c.f.Width,
			),
		}, false, nil
	case r.isOtherRate():
		return nil, true, nil
	case r.byTime != nil:
		rows := len(r.byTime)
		return &robocache.Finding{
			Severity: robocache.SeverityWarning, Code: "frame-count", Count: int64(r.frames - rows),
			Message: fmt.Sprintf("%d frames for %d rows: frames are found by time, %d are not used",
				r.frames, rows, r.frames-rows),
		}, false, nil
	}
	return nil, false, nil
}
