package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// camera knows where the frames of one video feature lie.
type camera struct {
	key       string
	templates []string
	cols      *camColumns
	byFile    fileIndex
	files     []atomic.Pointer[camFile]
}

// camFile is one mp4 laid out: who owns which frames. Immutable.
type camFile struct {
	path  string
	shown []shown // sorted by episode
	exact bool    // frames = rows: frame numbers were counted, no time was consulted
}

// shown is where an episode's frames lie in its file.
type shown struct {
	episode int32
	first   int32 // number of its first frame
	span    int32 // frames; less than its length where rows have none
}

// openCamera finds a camera's files; false where there are none at all.
func (d *Dataset) openCamera(ctx context.Context, f *robocache.Feature) bool {
	c := &camera{key: f.Key, templates: d.paths.videoTemplates(f.Key), cols: d.eps.cams[f.Key]}
	if d.raw.major == 2 {
		c.cols = &camColumns{file: d.eps.file, files: d.eps.files}
	}
	if c.cols == nil && d.eps.n() == 0 {
		c.cols = &camColumns{} // its first file comes with the first episode
	} else if c.cols == nil {
		return false
	}
	from, n := c.cols.from, len(c.cols.files)
	c.byFile = indexFiles(c.cols.file, n, func(a, b int32) bool { return from != nil && from[a] < from[b] })
	c.files = make([]atomic.Pointer[camFile], n)
	d.cams[f.Key] = c
	if n == 0 {
		return true
	}
	best, probes, found := d.probe(ctx, c.templates, n, func(i int32) place { return d.placeOf(c.cols.files[i], c.key) })
	c.templates = best
	if declared := d.raw.videoPath; found > 0 {
		if declared != "" && best[0] != declared {
			d.templateLies("/video_path", f.Key, fmt.Sprintf("video_path %q does not name the files of %s; %q does", declared, f.Key, best[0]), "write the template that fits")
		}
		return true
	}
	for _, pl := range probes {
		if name := d.paths.inTree(ctx, pl); name != "" {
			d.templateLies("/video_path", f.Key, fmt.Sprintf("no known template names the files of %s; they were found by key and number, as in %q", f.Key, name), "move the files, or write the template that fits")
			return true
		}
	}
	if d.paths.anyOf(ctx, f.Key) {
		return true
	}
	delete(d.cams, f.Key)
	return false
}

func (c *camera) fileOf(episode int) int32 { return c.cols.file[episode] }

// Frames says where the frames of rows lie.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (err error) {
	defer guard.Recover("lerobot frames", &err)
	col := d.get(key, robocache.KindVideo, robocache.KindImage)
	guard.Check(op.Room(key, "entries", len(rows), len(out)))
	if col.kind == robocache.KindImage {
		d.stills(ctx, col, rows, out)
		return nil
	}
	c := d.cams[key]
	var f *camFile
	d.warmFrames(ctx, c, rows)
	first, span, last := 0, 0, -1
	for i, r := range rows {
		d.run(rows[i : i+1])
		if r.Episode != last {
			f = guard.Must(d.layout(ctx, c, r.Episode))
			first, span = f.of(int32(r.Episode))
			last = r.Episode
		}
		if r.Index >= span {
			out[i] = robocache.FrameRef{Missing: true}
			continue
		}
		out[i] = robocache.FrameRef{Path: f.path, Ordinal: first + r.Index}
	}
	return nil
}

// of gives an episode's first frame and how many of its rows have one.
func (f *camFile) of(episode int32) (first, span int) {
	i, ok := slices.BinarySearchFunc(f.shown, episode, func(s shown, e int32) int { return cmp.Compare(s.episode, e) })
	if !ok {
		return 0, 0
	}
	return int(f.shown[i].first), int(f.shown[i].span)
}

// layout gives the file that holds an episode's frames, laid out. Who asks at the same time shares the library's read and makes an equal
// layout each.
func (d *Dataset) layout(ctx context.Context, c *camera, episode int) (f *camFile, err error) {
	n := c.fileOf(episode)
	if f := c.files[n].Load(); f != nil {
		return f, nil
	}
	defer guard.Recover("lerobot frames", &err)
	defer guard.At(robocache.Where{"episode": d.eps.id(episode), "stream": c.key})
	var vf *video.File
	path := d.paths.try(ctx, c.templates, d.placeOf(c.cols.files[n], c.key), func(name string) (err error) {
		if vf, err = d.lib.Acquire(ctx, name); err != nil {
			err = d.explain(ctx, name, err)
		}
		return err
	})
	defer vf.Release()
	f = d.layOut(ctx, c, n, path, vf.Index)
	c.files[n].Store(f)
	return f, nil
}

// explain says "LFS pointer" where a video file is one.
func (d *Dataset) explain(ctx context.Context, path string, err error) error {
	if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrUnsupported) {
		return err
	}
	r, e := d.Bytes.Open(ctx, path)
	if e != nil {
		return err
	}
	defer r.Close()
	head := make([]byte, min(64, r.Size()))
	if r.ReadAt(ctx, head, 0) == nil && isLFSPointer(head) {
		return lfsError(path)
	}
	return err
}

func (d *Dataset) noticeCount(c *camera, path string, episode, imgs, rows int) {
	sev := robocache.SeverityWarning
	if imgs < rows {
		sev = robocache.SeverityError
	}
	d.notice(robocache.Finding{Severity: sev, Code: "frame-count", Where: robocache.Where{"file": path, "stream": c.key, "episode": d.eps.id(episode)},
		Message: fmt.Sprintf("%d frames for %d rows", imgs, rows), Hint: "rows without a frame are masked; record or convert the episode again", Count: int64(max(0, rows-imgs))})
}

// layOut gives every episode of a file its frames: counted where frames = rows, else by the sample nearest to
// from_timestamp, in order. The only episode of a file of v2 begins with it.
func (d *Dataset) layOut(ctx context.Context, c *camera, file int32, path string, ix *video.Index) *camFile {
	defer guard.In("file", path)
	f := &camFile{path: path}
	rows := 0
	for _, e := range c.byFile.of(file) {
		f.shown = append(f.shown, shown{episode: e, first: int32(rows), span: d.eps.length[e]})
		rows += int(d.eps.length[e])
	}
	if f.exact = rows == ix.NumFrames() || rows < ix.NumFrames() && d.raw.major > 2 && d.declared(ctx, c, f, ix); !f.exact {
		d.byTime(c, f, ix, rows)
	}
	less := func(a, b shown) int { return cmp.Compare(a.episode, b.episode) }
	if !slices.IsSortedFunc(f.shown, less) {
		slices.SortFunc(f.shown, less)
		d.notice(robocache.Finding{Severity: robocache.SeverityWarning, Code: "video-order", Where: robocache.Where{"file": path, "stream": c.key}, Message: "episodes lie in another order in the video than in the dataset, as from_timestamp says"})
	}
	return f
}

// byTime finds the frames of the episodes of a file that has others than one a row.
func (d *Dataset) byTime(c *camera, f *camFile, ix *video.Index, rows int) {
	n, v2 := ix.NumFrames(), d.raw.major == 2
	if c.cols.from == nil && !v2 {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Want: fmt.Sprintf("%d frames, one a row", rows), Got: fmt.Sprint(n), Msg: "and no from_timestamp says where episodes start"})
	}
	if !v2 {
		d.notice(robocache.Finding{Severity: robocache.SeverityError, Code: "frame-count", Where: robocache.Where{"file": f.path, "stream": c.key},
			Message: fmt.Sprintf("%d frames for the %d rows of its episodes", n, rows), Hint: "rows without a frame are masked; record or convert the episodes again", Count: int64(max(rows-n, n-rows))})
	}
	at := 0
	for i := range f.shown {
		s := &f.shown[i]
		if !v2 {
			from := c.cols.from[s.episode]
			if math.IsNaN(from) || math.IsInf(from, 0) || from < 0 {
				guard.Fail(malformed(robocache.Where{"column": "videos/" + c.key + "/from_timestamp", "episode": d.eps.id(int(s.episode))}, "seconds", fmt.Sprint(from)))
			}
			at = min(n, max(at, nearest(ix, from)))
		}
		if s.first = int32(at); s.span > 0 {
			at++ // the next episode starts later, whatever its timestamp says
		}
	}
	for i := range f.shown {
		s, end := &f.shown[i], n
		if i+1 < len(f.shown) {
			end = int(f.shown[i+1].first)
		}
		have, length := max(0, end-int(s.first)), int(s.span)
		if s.span = int32(min(have, length)); have != length {
			d.noticeCount(c, f.path, int(s.episode), have, length)
		}
	}
}

// nearest is the frame whose time is nearest to seconds; the earlier one of two.
func nearest(ix *video.Index, seconds float64) int {
	n := ix.NumFrames()
	if n == 0 {
		return 0
	}
	want := float64(seconds * float64(ix.Timescale())) // rounded, not fused with what is subtracted below
	i := sort.Search(n, func(i int) bool { return float64(ix.PTS(i)) >= want })
	if i == n {
		// After the last frame: within one frame it still is the last one, else there is none.
		step := float64(ix.PTS(n-1)-ix.PTS(0)) / float64(max(1, n-1))
		if want-float64(ix.PTS(n-1)) <= step/2 {
			return n - 1
		}
		return n
	}
	if i > 0 && want-float64(ix.PTS(i-1)) <= float64(ix.PTS(i))-want {
		return i - 1
	}
	return i
}

// anyOf says whether some file of a camera exists, by the listing.
func (p *paths) anyOf(ctx context.Context, key string) bool {
	p.inTree(ctx, place{key: key})
	p.once.Lock()
	defer p.once.Unlock()
	for pl, name := range p.tree {
		if pl.key == key && name != "" {
			return true
		}
	}
	return false
}

// VideoStart is the time in its mp4 at which the metadata says that an episode's frames begin, in ns; ok is false where it says
// nothing. Frames are not found by it: it is for who wants the reference's check of times.
func (d *Dataset) VideoStart(ctx context.Context, episode int, key string) (ns int64, ok bool, err error) {
	defer guard.Recover("lerobot video", &err)
	d.checkEpisode(episode)
	d.get(key, robocache.KindVideo)
	from := timestampAt(d.cams[key].cols.from, episode)
	if math.IsNaN(from) || math.Abs(from) > 4e9 {
		return 0, false, nil
	}
	return int64(math.RoundToEven(from * 1e9)), true, nil
}

func timestampAt(s []float64, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s[i]
}
