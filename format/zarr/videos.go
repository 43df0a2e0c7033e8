package zarr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	bufferFolder = "replay_buffer.zarr" // of a recording of a real robot, beside videos/
	videosFolder = "videos"
)

// cameras are the mp4 files that lie beside a replay buffer: videos/<episode>/<camera>.mp4.
type cameras struct {
	st    store.Store
	close bool // st is not the store of the buffer, and is closed apart
	lib   *video.Library
	cams  map[string]*camera
}

// camera is a stream of images, a file an episode.
type camera struct {
	f     *robocache.Feature
	files []string // by episode; "" where there is none

	mu   sync.Mutex
	maps map[int]*frameMap
}

// frameMap says which images of an episode's file its rows show.
type frameMap struct {
	images int
	have   int     // rows from the first on that have an image
	at     []int32 // the image of each; nil: its own number
}

// Video gives the mp4 files beside the buffer.
func (d *Dataset) Video() *video.Library { return d.cameras.lib }

func newCameras(st store.Store, budget int64) cameras {
	open := func(ctx context.Context, name string) (robocache.Ranged, error) { return st.Open(ctx, name) }
	return cameras{st: st, lib: video.NewLibrary(open, max(budget/8, smallestBudget)), cams: map[string]*camera{}}
}

// findVideos adds the cameras of videos/. What keeps them from being read keeps the buffer's own streams from nothing.
func (d *Dataset) findVideos(ctx context.Context) {
	list, links, err := store.Files(ctx, d.cameras.st, videosFolder, func(name string) bool { return path.Ext(name) == ".mp4" })
	if errors.Is(err, robocache.ErrUnsupported) {
		return // http: nothing says which there are
	}
	guard.Check(err)
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
				tooMany("more than 256 cameras in videos/")
			}
			c = &camera{files: make([]string, n), maps: map[int]*frameMap{}}
			d.cameras.cams[key] = c
		}
		if other := c.files[episode]; other != "" {
			guard.Fail(robocache.At(malformed("two videos of one camera: %s, %s", other, e.Name), robocache.Where{"stream": key, "episode": episode}))
		}
		c.files[episode] = e.Name
	}
	if beyond > 0 {
		d.find(robocache.Finding{Severity: robocache.SeverityWarning, Code: "video-beyond", Where: robocache.Where{"file": videosFolder}, Message: fmt.Sprintf("%d videos are of episodes that the buffer does not have", beyond), Count: beyond, Hint: "an episode was dropped from the buffer without its videos"})
	}
	for _, k := range slices.Sorted(maps.Keys(d.cameras.cams)) {
		d.addCamera(ctx, k, d.cameras.cams[k])
	}
	guard.Check(ctx.Err())
}

// cameraKey: diffusion_policy names camera 0's images camera_0.
func cameraKey(stem string) string {
	if _, err := strconv.Atoi(stem); err == nil {
		stem = "camera_" + stem
	}
	return "observation." + stem
}

// addCamera describes a camera by the first of its files that can be read.
func (d *Dataset) addCamera(ctx context.Context, key string, c *camera) {
	if d.views[key] != nil {
		delete(d.cameras.cams, key)
		d.find(robocache.Finding{Severity: robocache.SeverityInfo, Code: "key-twice", Where: robocache.Where{"stream": key}, Message: "the buffer has images of this name; the videos beside it are left out"})
		return
	}
	f := robocache.Feature{Key: key, Kind: robocache.KindVideo, DType: robocache.Uint8, Channels: 3, FPS: d.rate}
	missing, tried := int64(0), 0
	var bad error
	for _, name := range c.files {
		if name == "" {
			missing++
			continue
		}
		if f.Height > 0 || tried >= 16 {
			continue
		}
		tried++
		file, err := d.cameras.lib.Acquire(ctx, name)
		if err != nil {
			bad = err
			continue
		}
		if e := file.Index.Entries(); len(e) > 0 {
			f.Height, f.Width, f.Codec = e[0].Height, e[0].Width, string(e[0].Codec)
		}
		file.Release()
	}
	if f.Height == 0 {
		delete(d.cameras.cams, key)
		d.find(robocache.Finding{Severity: robocache.SeverityError, Code: "bad-video", Where: robocache.Where{"stream": key}, Message: fmt.Sprintf("no video of this camera can be read: %v", bad), Hint: "fetch videos/ again", NotDelivered: key})
		return
	}
	f.Shape = []int{f.Height, f.Width, 3}
	if missing > 0 {
		d.find(robocache.Finding{Severity: robocache.SeverityWarning, Code: "missing-file", Where: robocache.Where{"stream": key}, Message: fmt.Sprintf("%d episodes have no video of this camera: their rows have no image", missing), Count: missing})
	}
	d.About.Features = append(d.About.Features, f)
}

// link points the cameras at their features once the list stands.
func (s *cameras) link(info *robocache.Info) {
	for key, c := range s.cams {
		c.f = info.Feature(key)
	}
}

// frameMap lays an episode's file out. As many images as rows: image k is row k's. Else, where the file has another rate than the rows
// (recorders run a camera at 30 Hz beside rows at 10), row k has the first image at or after its own time since the first row, as
// diffusion_policy reads them. Else image k is row k's as far as there are any.
func (d *Dataset) frameMap(ctx context.Context, c *camera, episode int) *frameMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.maps[episode]; r != nil {
		return r
	}
	r := &frameMap{}
	rows := d.Len(episode)
	if name := c.files[episode]; name != "" {
		file, err := d.cameras.lib.Acquire(ctx, name)
		guard.Check(robocache.At(err, robocache.Where{"stream": c.f.Key, "episode": episode}))
		defer file.Release()
		r.images = file.Index.NumFrames()
		r.have = min(r.images, rows)
		if r.images != rows && r.images > 1 && rows > 1 {
			t, err := d.Times(ctx, episode, "")
			if err != nil {
				guard.Fail(&robocache.Error{Class: robocache.Classify(err), Op: "zarr video", Where: robocache.Where{"stream": c.f.Key, "episode": episode, "file": name},
					Msg: fmt.Sprintf("%d images for %d rows, and without a rate nothing says which image is whose", r.images, rows), Hint: "say the rate of the rows: --rows-hz 10, in Python rows_hz=10", Err: err})
			}
			r.byTime(file.Index, t)
		}
	}
	c.maps[episode] = r
	return r
}

// byTime lays images out by their times, where the rates differ by more than a twentieth.
func (r *frameMap) byTime(ix *video.Index, t []int64) {
	n := ix.NumFrames()
	row := float64(t[len(t)-1]-t[0]) / float64(len(t)-1)
	image := float64(ix.TimeNS(n-1)-ix.TimeNS(0)) / float64(n-1)
	if !(row > 0 && image > 0) || (row < 1.05*image && image < 1.05*row) {
		return
	}
	slack := int64(row / 100) // what a time in the file's units may be off
	r.at, r.have = make([]int32, 0, len(t)), 0
	p := 0
	for _, at := range t {
		for p < n && ix.TimeNS(p)-ix.TimeNS(0) < at-t[0]-slack {
			p++
		}
		if p == n {
			break
		}
		r.at = append(r.at, int32(p))
		r.have++
	}
}

// image gives the number of a row's image.
func (r *frameMap) image(row int) (int, bool) {
	switch {
	case row >= r.have:
		return 0, false
	case r.at != nil:
		return int(r.at[row]), true
	}
	return row, true
}

// videoFrames says where images of a camera lie.
func (d *Dataset) videoFrames(ctx context.Context, c *camera, rows []robocache.Row, out []robocache.FrameRef) {
	d.rows(nil, rows)
	for i, row := range rows {
		if k, ok := d.frameMap(ctx, c, row.Episode).image(row.Index); ok {
			out[i] = robocache.FrameRef{Path: c.files[row.Episode], Ordinal: k}
		} else {
			out[i] = robocache.FrameRef{Missing: true}
		}
	}
}

// checkVideos compares the files of chosen episodes with their rows.
func (d *Dataset) checkVideos(ctx context.Context, eps []int) (out []robocache.Finding) {
	for _, key := range slices.Sorted(maps.Keys(d.cameras.cams)) {
		c := d.cameras.cams[key]
		var timed int64
		for _, e := range eps {
			if c.files[e] == "" || len(out) >= maxFindings {
				continue // said when it was opened
			}
			where := robocache.Where{"stream": key, "episode": e, "file": c.files[e]}
			var r *frameMap
			err := guard.RaiseInternal(guard.Try(func() { r = d.frameMap(ctx, c, e) }))
			guard.Check(ctx.Err())
			rows := d.Len(e)
			switch {
			case err != nil:
				out = append(out, robocache.Finding{Severity: robocache.SeverityError, Code: "bad-video", Where: where, Message: err.Error(), Hint: "fetch the file again"})
			case r.at != nil && r.have == rows:
				timed++
			case r.images < rows || r.have < rows:
				out = append(out, robocache.Finding{Severity: robocache.SeverityError, Code: "frame-count", Where: where, Message: fmt.Sprintf("%d images for %d rows: the last %d rows have none", r.images, rows, rows-r.have), Count: int64(rows - r.have), Hint: "record the episode again, or drop it"})
			case r.images > rows:
				out = append(out, robocache.Finding{Severity: robocache.SeverityWarning, Code: "frame-count", Where: where, Message: fmt.Sprintf("%d images for %d rows: the last %d are not used", r.images, rows, r.images-rows), Count: int64(r.images - rows)})
			}
		}
		if timed > 0 {
			out = append(out, robocache.Finding{Severity: robocache.SeverityInfo, Code: "video-rate", Where: robocache.Where{"stream": key}, Message: fmt.Sprintf("%d videos run at another rate than the rows: a row has the first image at or after its time", timed), Count: timed})
		}
	}
	return out
}
