package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// camera finds the frames of one video feature.
type camera struct {
	key       string
	templates []string
	cols      *camColumns
	byFile    fileIndex
	files     []atomic.Pointer[camFile]
}

// camFile is one mp4 and the places of its episodes. It is immutable.
type camFile struct {
	path     string
	episodes []shown    // sorted by episode
	timed    *timedFile // nil if frames are found by number
}

// shown is an episode in a file, with the number of its first frame.
type shown struct{ episode, first int32 }

// openCamera prepares a camera. It returns false if the camera has no files.
func (d *Dataset) openCamera(ctx context.Context, f *robocache.Feature) (bool, error) {
	c := &camera{
		key:       f.Key,
		templates: d.paths.videoTemplates(f.Key),
		cols:      d.episodes.cameras[f.Key],
	}
	if d.raw.major == 2 {
		c.cols = &camColumns{file: d.episodes.file, files: d.episodes.files}
	}
	if c.cols == nil && d.episodes.count() == 0 {
		c.cols = &camColumns{} // a dataset without episodes has no video files yet
	} else if c.cols == nil {
		return false, nil
	}
	from := c.cols.from
	n := len(c.cols.files)
	c.byFile = indexFiles(
		c.cols.file,
		n,
		func(a, b int32) bool { return from != nil && from[a] < from[b] },
	)
	c.files = make([]atomic.Pointer[camFile], n)
	d.cameras[f.Key] = c
	if n == 0 {
		return true, nil
	}
	best, probes, found, err := d.probeTemplates(
		ctx,
		c.templates,
		n,
		func(i int32) place { return d.placeOf(c.cols.files[i], c.key) },
	)
	if err != nil {
		return false, err
	}
	c.templates = best
	declared := d.raw.videoPath
	if found > 0 {
		if declared != "" && best[0] != declared {
			d.reportTemplate(
				"/video_path",
				f.Key,
				fmt.Sprintf(
					"video_path %q does not name the files of %s; %q does",
					declared,
					f.Key,
					best[0],
				),
				"write the template that fits",
			)
		}
		return true, nil
	}
	hasFiles, err := d.hasUnnamedFiles(ctx, f.Key, probes)
	if err != nil {
		return false, err
	}
	if !hasFiles {
		delete(d.cameras, f.Key)
	}
	return hasFiles, nil
}

// hasUnnamedFiles returns true if a camera has files that no known template names. If such a file
// is found by the key and the number in its name, it adds a finding about the template.
func (d *Dataset) hasUnnamedFiles(ctx context.Context, key string, probes []place) (bool, error) {
	for _, pl := range probes {
		name, err := d.paths.pathInListing(ctx, pl)
		if err != nil {
			return false, err
		}
		if name != "" {
			d.reportTemplate(
				"/video_path",
				key,
				fmt.Sprintf(
					"no known template names the files of %s; they were found by key and "+
						"number, such as %q",
					key,
					name,
				),
				"move the files, or write the template that fits",
			)
			return true, nil
		}
	}
	return d.paths.hasCameraFile(ctx, key)
}

// fileOf returns the position in c.files of an episode's video, or unknownFile.
func (c *camera) fileOf(episode int) int32 { return c.cols.file[episode] }

// Frames returns references to the images of rows. An episode whose frames cannot be determined is
// an error of class ErrMalformed from its first row on.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("lerobot frames", &err)
	col, err := d.columnOf(key, robocache.KindVideo, robocache.KindImage)
	if err != nil {
		return err
	}
	if err := op.Room(key, "entries", len(rows), len(out)); err != nil {
		return err
	}
	if col.kind == robocache.KindImage {
		return d.readStills(ctx, col, rows, out)
	}
	c := d.cameras[key]
	var f *camFile
	d.warmFrames(ctx, c, rows)
	firstFrame := 0
	lastEpisode := -1
	var byTime []int32 // frame of each row of the episode; nil if frames are found by number
	for i, r := range rows {
		if err := d.checkRowExists(r); err != nil {
			return err
		}
		if r.Episode != lastEpisode {
			lastEpisode = r.Episode
			if f, err = d.cameraFile(ctx, c, r.Episode); err != nil {
				return err
			}
			if f.timed == nil {
				firstFrame = f.firstFrame(int32(r.Episode))
				byTime = nil
			} else {
				if byTime, err = d.framesByTime(ctx, c, f, r.Episode); err != nil {
					return err
				}
			}
		}
		if byTime != nil {
			out[i] = robocache.FrameRef{Path: f.path, Ordinal: int(byTime[r.Index])}
			continue
		}
		out[i] = robocache.FrameRef{Path: f.path, Ordinal: firstFrame + r.Index}
	}
	return nil
}

// firstFrame returns the number of an episode's first frame in a file whose frames are found by
// number.
func (f *camFile) firstFrame(episode int32) int {
	i, ok := slices.BinarySearchFunc(
		f.episodes,
		episode,
		func(s shown, e int32) int { return cmp.Compare(s.episode, e) },
	)
	if !ok {
		return 0
	}
	return int(f.episodes[i].first)
}

// cameraFile returns the file that holds an episode's frames, with the places of its episodes.
// Concurrent callers share the library's read, and each computes an equal result.
func (d *Dataset) cameraFile(ctx context.Context, c *camera, episode int) (f *camFile, err error) {
	n := c.fileOf(episode)
	if n == unknownFile {
		return nil, d.unknownFramesError(c.key, episode)
	}
	if f := c.files[n].Load(); f != nil {
		return f, nil
	}
	defer crash.Recover("lerobot frames", &err)
	defer robocache.Locate(
		&err,
		robocache.Where{"episode": d.episodes.indexAt(episode), "stream": c.key},
	)
	var videoFile *video.File
	path, err := d.paths.tryPaths(
		ctx,
		c.templates,
		d.placeOf(c.cols.files[n], c.key),
		func(name string) (err error) {
			if videoFile, err = d.library.Acquire(ctx, name); err != nil {
				err = d.explainVideo(ctx, name, err)
			}
			return err
		},
	)
	if err != nil {
		return f, err
	}
	defer videoFile.Release()
	if f, err = d.placeEpisodes(ctx, c, n, path, videoFile.Index); err != nil {
		return f, err
	}
	c.files[n].Store(f)
	return f, nil
}

// explainVideo returns err, or a clearer error if the video file is a Git LFS pointer.
func (d *Dataset) explainVideo(ctx context.Context, path string, err error) error {
	if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrUnsupported) {
		return err
	}
	r, openErr := d.Bytes.Open(ctx, path)
	if openErr != nil {
		return err
	}
	defer r.Close()
	head := make([]byte, min(64, r.Size()))
	if r.ReadAt(ctx, head, 0) == nil && isLFSPointer(head) {
		return lfsError(path)
	}
	return err
}

// placeEpisodes assigns every episode of a file its first frame. This requires that the file has as
// many frames as rows, plus those that an edit declared as hidden. Otherwise frames are found by
// time.
func (d *Dataset) placeEpisodes(
	ctx context.Context,
	c *camera,
	file int32,
	path string,
	ix *video.Index,
) (_ *camFile, err error) {
	defer robocache.LocateIn(&err, "file", path)
	if err := d.tables.compareEpisodes(ctx, c.byFile.of(file)); err != nil {
		return nil, err
	}
	f := &camFile{path: path}
	rows := 0
	for _, e := range c.byFile.of(file) {
		f.episodes = append(f.episodes, shown{episode: e, first: int32(rows)})
		rows += int(d.episodes.length[e])
	}
	countsAgree := rows == ix.NumFrames()
	if rows < ix.NumFrames() && d.raw.major > 2 {
		countsAgree = d.placeHidden(ctx, c, f, ix)
	}
	isByNumber := countsAgree && d.isOrdered(c, c.byFile.of(file))
	if !isByNumber {
		f.timed = d.newTimedFile(c, file, rows, ix)
		n := ix.NumFrames()
		d.noticeOnce(robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "frame-count",
			Where:    robocache.Where{"file": path, "stream": c.key},
			Message: fmt.Sprintf(
				"%d frames for the %d rows of its episodes: frames are found by time",
				n,
				rows,
			),
			Hint:  robocache.Command("convert") + " writes a dataset with one frame for each row",
			Count: int64(max(rows-n, n-rows)),
		})
	}
	byEpisode := func(a, b shown) int { return cmp.Compare(a.episode, b.episode) }
	if !slices.IsSortedFunc(f.episodes, byEpisode) {
		slices.SortFunc(f.episodes, byEpisode)
		if isByNumber {
			d.noticeOnce(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "video-order",
				Where:    robocache.Where{"file": path, "stream": c.key},
				Message: "according to from_timestamp, the order of episodes in the video " +
					"differs from the dataset",
			})
		}
	}
	return f, nil
}

// isOrdered reports whether the order of episodes in their file is known. It is the order of
// from_timestamp. If an episode has no valid time, the others must be in the order of the table.
func (d *Dataset) isOrdered(c *camera, eps []int32) bool {
	haveTimes, isSorted := true, true
	last := int64(math.MinInt64)
	for _, e := range slices.Sorted(slices.Values(eps)) {
		from, ok := d.videoStart(c, int(e))
		if !ok {
			haveTimes = false
			continue
		}
		isSorted = isSorted && from >= last
		last = from
	}
	return haveTimes || isSorted
}

// hasCameraFile reports whether the listing has a file of a camera.
func (p *paths) hasCameraFile(ctx context.Context, key string) (bool, error) {
	if _, err := p.pathInListing(ctx, place{key: key}); err != nil {
		return false, err
	}
	p.listing.Lock()
	defer p.listing.Unlock()
	for pl, name := range p.tree {
		if pl.key == key && name != "" {
			return true, nil
		}
	}
	return false, nil
}

// VideoStart returns the time at which an episode begins in its mp4, in nanoseconds; it is 0 in v2.
// ok is false if the metadata does not state it. Callers use it to repeat lerobot's check of
// timestamps.
func (d *Dataset) VideoStart(
	_ context.Context,
	episode int,
	key string,
) (ns int64, ok bool, err error) {
	defer crash.Recover("lerobot video", &err)
	if err := d.checkEpisode(episode); err != nil {
		return ns, ok, err
	}
	if _, err := d.columnOf(key, robocache.KindVideo); err != nil {
		return ns, ok, err
	}
	ns, ok = d.videoStart(d.cameras[key], episode)
	return ns, ok, nil
}

// timestampAt returns a value of a column, or NaN if the column is missing.
func timestampAt(s []float64, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s[i]
}
