package write

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// outCamera collects the episodes of one camera until their mp4 is full.
type outCamera struct {
	feature             robocache.Feature
	chunk               int
	file                int
	parts               []cameraPart
	bytes               int64
	places              []*videoPlace
	encoded             bool
	reportedReplacement bool              // the replaced codec was reported
	hasFirst            bool              // first is set
	first               video.SampleEntry // from the first file written
	// otherCodecs maps a file to its codec if that differs from the first (merged datasets).
	otherCodecs map[string]string
}

// cameraPart is a run of an episode's frames in the file that is being collected.
type cameraPart struct {
	lib       *video.Library
	path      string
	from, to  int
	before    int       // frames at the beginning that no row shows
	behind    int       // frames at the end that no row shows
	tempFile  *tempFile // the file was encoded by this writer
	identity  string    // version of the bytes, for the journal
	openFiles int       // files open when the parts up to this one are joined
}

// maxParts bounds the files that are open at once during a join.
const maxParts = 256

// errProbe stops a Concat that was only called to check its parts.
var errProbe = errors.New("joinable")

// probeWriter fails every write with errProbe.
type probeWriter struct{}

// Write returns errProbe.
func (probeWriter) Write([]byte) (int, error) { return 0, errProbe }

// checkJoinable returns nil if the parts can be joined in one file, and else the reason. It calls
// Concat with a writer that fails, because Concat checks every part before it writes.
func checkJoinable(ctx context.Context, parts []video.Part, rate robocache.Rate) error {
	err := video.Concat(ctx, probeWriter{}, parts, rate)
	if errors.Is(err, errProbe) {
		return nil
	}
	return err
}

// CanCopy returns nil if frames from ≤ k < to of a file can be stream-copied to the start of a file
// and behind other frames. Otherwise its error gives the reason.
func CanCopy(
	ctx context.Context,
	lib *video.Library,
	path string,
	from, to int,
	rate robocache.Rate,
) (err error) {
	defer crash.Recover("write lerobot", &err)
	f, err := lib.Acquire(ctx, path)
	if err != nil {
		return err
	}
	defer f.Release()
	// Check the part as a joint with itself: frames that may follow other frames may also begin a
	// file, but not the other way around.
	p := video.Part{File: f, From: from, To: to}
	return checkJoinable(ctx, []video.Part{p, p}, rate)
}

// Copyable finds the fewest frames around from ≤ k < to of a file that must be copied with them. It
// returns how many are needed before and behind, at most limit each. The error is ErrUnsupported if
// no such frames exist. The copied frames begin at a key frame, so before is tried first.
func Copyable(
	ctx context.Context,
	lib *video.Library,
	path string,
	from, to, limit int,
	rate robocache.Rate,
) (before, behind int, err error) {
	err = CanCopy(ctx, lib, path, from, to, rate)
	if limit == 0 || !errors.Is(err, robocache.ErrUnsupported) {
		return 0, 0, err
	}
	f, openErr := lib.Acquire(ctx, path)
	if openErr != nil {
		return 0, 0, openErr
	}
	defer f.Release()
	for before = 0; before <= min(limit, from); before++ {
		if ix := f.Index; !ix.Sample(ix.DecodeIndex(from - before)).Sync {
			continue
		}
		for behind = 0; behind <= min(limit, f.Index.NumFrames()-to); behind++ {
			extendedErr := CanCopy(ctx, lib, path, from-before, to+behind, rate)
			if !errors.Is(extendedErr, robocache.ErrUnsupported) {
				return before, behind, extendedErr
			}
		}
	}
	return 0, 0, err
}

// findJoints divides the frames from … to-1 of a file into three runs. The first head frames and
// the last tail frames must be encoded. The frames between them can be copied as packets and joined
// to other video. ok is false if no frames can be copied.
func findJoints(
	ctx context.Context,
	lib *video.Library,
	path string,
	from, to int,
	rate robocache.Rate,
) (head, tail int, ok bool, err error) {
	f, err := lib.Acquire(ctx, path)
	if err != nil {
		return head, tail, ok, err
	}
	defer f.Release()
	var syncs []int
	for k := from; k < to; k++ {
		if f.Index.Sample(f.Index.DecodeIndex(k)).Sync {
			syncs = append(syncs, k)
		}
	}
	// Number of key frames to try at each end. In an open GOP, a key frame after the first can be
	// one that resets the decoder.
	const tries = 4
	ends := append([]int{to}, syncs[max(0, len(syncs)-tries):]...)
	slices.Sort(ends)
	for _, start := range syncs[:min(tries, len(syncs))] {
		for _, end := range slices.Backward(ends) {
			if start < end && CanCopy(ctx, lib, path, start, end, rate) == nil {
				return start - from, to - end, true, nil
			}
		}
	}
	return 0, 0, false, nil
}

// addVideo adds the frames of one episode to camera c. src describes the frames that are copied.
// encoded holds the parts that were encoded: all frames in the first, or those at the two ends. It
// ends the camera's file when it is full, and records the place of the frames in row.
func (w *Writer) addVideo(
	ctx context.Context,
	c *outCamera,
	src VideoPart,
	encoded [2]*encodedPart,
	ep *EpisodeData,
	row *writtenEpisode,
) (err error) {
	defer robocache.LocateIn(&err, "stream", c.feature.Key)
	counted := ep.FrameStats[c.feature.Key] // nil: the frames were not decoded
	var parts []cameraPart
	if encoded[0] != nil {
		parts = append(parts, encoded[0].cameraPart)
	}
	if src.Library == nil {
		counted = encoded[0].pixels
	} else {
		parts = append(parts, cameraPart{
			lib:    src.Library,
			path:   src.Path,
			from:   src.From + src.Ends[0].N - src.Before,
			to:     src.From + ep.Length - src.Ends[1].N + src.Behind,
			before: src.Before,
			behind: src.Behind,
		})
	}
	if encoded[1] != nil {
		parts = append(parts, encoded[1].cameraPart)
	}
	c.encoded = c.encoded || encoded != [2]*encodedPart{}
	known := ep.Known[c.feature.Key]
	switch {
	case counted != nil:
		w.countFrames(c.feature.Key, counted, row)
	case known != nil:
		w.countKnown(c.feature.Key, known, row)
	default:
		w.addFinding(
			robocache.SeverityInfo,
			"no-image-statistics",
			c.feature.Key,
			row.index,
			"the frames were copied without being decoded: the camera has no statistics for "+
				"such episodes",
			0,
		)
	}
	var place *videoPlace
	for i := range parts {
		size, err := w.fitPart(ctx, c, &parts[i], place != nil)
		if err != nil {
			w.closeTemp(parts[i:])
			return err
		}
		parts[i].openFiles = c.openFiles(&parts[i])
		c.parts = append(c.parts, parts[i])
		c.bytes += size
		if place == nil {
			place = &videoPlace{chunk: c.chunk, file: c.file}
		}
		c.places = append(c.places, place)
	}
	row.videos[c.feature.Key] = place
	return nil
}

// countFrames adds the pixel counts p of an episode's frames.
func (w *Writer) countFrames(key string, p *stats.Pixels, row *writtenEpisode) {
	row.stats[key] = p.Stats()
	if row.stats[key] == nil {
		return
	}
	if w.pixels[key] == nil {
		w.pixels[key] = p.Empty()
	}
	w.pixels[key].Merge(p)
}

// fitPart returns the size of a part. It begins the next file if the part would overfill the
// current one or cannot be joined to it. A part that continues an episode stays in the episode's
// file.
func (w *Writer) fitPart(
	ctx context.Context,
	c *outCamera,
	part *cameraPart,
	continues bool,
) (size int64, err error) {
	f, err := part.lib.Acquire(ctx, part.path)
	if err != nil {
		return size, err
	}
	defer f.Release()
	if part.from < 0 || part.to > f.Index.NumFrames() {
		return size, malformed(
			robocache.Where{"file": part.path},
			"the file has fewer frames than the episode has rows",
			strconv.Itoa(part.to),
			strconv.Itoa(f.Index.NumFrames()),
		)
	}
	for k := part.from; k < part.to; k++ {
		size += int64(f.Index.Sample(f.Index.DecodeIndex(k)).Size)
	}
	if part.tempFile != nil {
		part.identity = "encoded"
	} else {
		part.identity = f.Ranged.Version()
	}
	next := video.Part{File: f, From: part.from, To: part.to}
	if err := checkJoinable(ctx, []video.Part{next}, w.cfg.FPS); err != nil {
		return size, err
	}
	if len(c.parts) == 0 {
		return size, nil
	}
	if continues {
		return size, w.checkFollows(ctx, c, next)
	}
	if !w.isFull(c, part, size) {
		err := w.checkFollows(ctx, c, next)
		if !errors.Is(err, robocache.ErrUnsupported) {
			return size, err
		}
	}
	if err := w.endVideo(ctx, c); err != nil {
		return size, err
	}
	c.chunk, c.file, err = nextFile(c.chunk, c.file, w.cfg.ChunksSize, "video", w.cfg.Shard)
	return size, err
}

// isFull reports whether the camera's file must end before a part of size bytes is added.
func (w *Writer) isFull(c *outCamera, part *cameraPart, size int64) bool {
	// With LinkFrom, a source file that is not small becomes a file of its own, because a hard
	// link is cheaper than a copy.
	isOtherFile := part.path != c.parts[len(c.parts)-1].path
	isLarge := c.bytes >= w.cfg.VideoFileBytes/8
	endsLink := w.cfg.LinkFrom != "" && isOtherFile && isLarge
	isLong := c.bytes+size >= w.cfg.VideoFileBytes || c.openFiles(part) > maxParts
	return endsLink || isLong || w.cfg.perEpisode()
}

// checkFollows returns an error of class ErrUnsupported if a part cannot be joined to the parts of
// the camera's file.
func (w *Writer) checkFollows(ctx context.Context, c *outCamera, next video.Part) error {
	head := c.parts[0]
	f, err := head.lib.Acquire(ctx, head.path)
	if err != nil {
		return err
	}
	defer f.Release()
	first := video.Part{File: f, From: head.from, To: head.to}
	return checkJoinable(ctx, []video.Part{first, next}, w.cfg.FPS)
}

// openFiles returns how many files are open when the collected parts and next are joined. Adjacent
// parts of the same file count once.
func (c *outCamera) openFiles(next *cameraPart) int {
	n := len(c.parts)
	if n == 0 {
		return 1
	}
	last := &c.parts[n-1]
	if last.lib == next.lib && last.path == next.path {
		return last.openFiles
	}
	return last.openFiles + 1
}

// endVideo joins the collected parts into the camera's file. It then reads the sample table of that
// file, so that the metadata describes the real content.
func (w *Writer) endVideo(ctx context.Context, c *outCamera) error {
	if len(c.parts) == 0 {
		return nil
	}
	name := w.cfg.fileName("videos/"+c.feature.Key+"/chunk-%03d/%s.mp4", c.chunk, c.file)
	if w.cfg.perEpisode() {
		name = w.cfg.fileName("videos/chunk-%03d/"+c.feature.Key+"/%s.mp4", c.chunk, c.file)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, w.cfg.FPS, w.cfg.Video)
	for _, p := range c.parts {
		fmt.Fprintln(hash, p.path, p.from, p.to, p.identity)
	}
	partsKey := hex.EncodeToString(hash.Sum(nil))
	w.recordFile(name)
	// A file with encoded parts is always written, because their bytes have no identity.
	isJournaled := w.journal != nil && !c.encoded
	if !isJournaled || !w.journal.hasFile(ctx, name, partsKey) {
		if err := w.joinParts(ctx, c, name); err != nil {
			return err
		}
		if isJournaled {
			if err := w.journal.addFile(ctx, name, partsKey); err != nil {
				return err
			}
		}
	}
	if err := w.locateEpisodes(ctx, c, name); err != nil {
		return err
	}
	w.closeTemp(c.parts)
	c.parts, c.places, c.bytes = nil, nil, 0
	return nil
}

// joinParts writes the collected parts into one file, or makes it a hard link.
func (w *Writer) joinParts(ctx context.Context, c *outCamera, name string) (err error) {
	defer robocache.LocateIn(&err, "file", name)
	parts := make([]video.Part, 0, len(c.parts))
	defer func() {
		for _, p := range parts {
			p.File.Release()
		}
	}()
	for _, p := range c.parts {
		file, err := p.lib.Acquire(ctx, p.path)
		if err != nil {
			return err
		}
		parts = append(parts, video.Part{File: file, From: p.from, To: p.to})
	}
	if w.linkWhole(parts, name) {
		return nil
	}
	out, err := w.dst.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := video.Concat(ctx, out, parts, w.cfg.FPS); err != nil {
		return err
	}
	return out.Commit()
}

// linkWhole makes a file a hard link to the source file. It returns false unless the parts are all
// frames of one file in order, and the file is on the grid.
func (w *Writer) linkWhole(parts []video.Part, name string) bool {
	dir, local := store.LocalPath(w.dst.URI())
	scale, delta, err := video.TrackTimescale(w.cfg.FPS)
	if w.cfg.LinkFrom == "" || !local || err != nil {
		return false
	}
	ix := parts[0].File.Index
	next := 0
	for _, p := range parts {
		if p.File.Path != parts[0].File.Path || p.From != next {
			return false
		}
		next = p.To
	}
	if next != ix.NumFrames() || ix.NumSamples() != next || ix.Timescale() != scale {
		return false
	}
	for k := range next {
		if ix.PTS(k) != int64(k)*delta {
			return false
		}
	}
	to := filepath.Join(dir, filepath.FromSlash(name))
	if os.MkdirAll(filepath.Dir(to), 0o777) != nil {
		return false
	}
	from, err := filepath.EvalSymlinks(
		filepath.Join(w.cfg.LinkFrom, filepath.FromSlash(parts[0].File.Path)),
	)
	return err == nil && os.Link(from, to) == nil
}

// locateEpisodes records where the episodes are in the finished file (write.W4).
func (w *Writer) locateEpisodes(ctx context.Context, c *outCamera, name string) (err error) {
	defer robocache.LocateIn(&err, "file", name)
	f, err := w.dst.Open(ctx, name)
	if err != nil {
		return err
	}
	defer f.Close()
	ix, err := video.ReadIndex(ctx, f, video.Limits{})
	if err != nil {
		return err
	}
	total := 0
	for _, p := range c.parts {
		total += p.to - p.from
	}
	if ix.NumFrames() != total {
		return malformed(
			nil,
			"frames in the joined file",
			strconv.Itoa(total),
			strconv.Itoa(ix.NumFrames()),
		)
	}
	if !c.hasFirst {
		c.hasFirst = true
		c.first = ix.Entries()[0]
		c.otherCodecs = map[string]string{}
	}
	if codec := ix.Entries()[0].Codec; codec != c.first.Codec {
		c.otherCodecs[name] = string(codec)
	}
	scale, delta, err := video.TrackTimescale(w.cfg.FPS)
	if err != nil {
		return err
	}
	frame := 0
	for i, p := range c.parts {
		n := p.to - p.from
		pts := ix.PTS(frame)
		isOnGrid := pts == int64(frame)*delta && ix.PTS(frame+n-1) == int64(frame+n-1)*delta
		if ix.Timescale() != scale || !isOnGrid {
			return malformed(
				robocache.Where{"frame": frame},
				"the joined file is not on its grid",
				fmt.Sprintf("%d/%d s", int64(frame)*delta, scale),
				fmt.Sprintf("%d/%d s", pts, ix.Timescale()),
			)
		}
		place := c.places[i]
		if !place.isSet { // the first part of an episode
			place.from = float64(int64(frame+p.before)*delta) / float64(scale)
		}
		place.to = float64(int64(frame+n-p.behind)*delta) / float64(scale)
		place.isSet = true
		frame += n
	}
	return nil
}

// malformed returns an error of class ErrMalformed.
func malformed(where robocache.Where, msg, want, got string) error {
	return robocache.Malformed("write lerobot", where, "%s", msg).Expected(want, got)
}

// videoInfo returns the camera's entry of info.json. It is read from the first file written, not
// from a declaration.
func (c *outCamera) videoInfo(rate robocache.Rate) jsonObject {
	f := c.feature
	channels := 3
	if f.Depth != nil {
		channels = 1
	}
	pix := pixelFormat(&c.first, f.Depth != nil)
	o := jsonObject{
		{"video.height", c.first.Height},
		{"video.width", c.first.Width},
		{"video.codec", string(c.first.Codec)},
	}
	if pix != "" {
		o = append(o, jsonField{"video.pix_fmt", pix})
	}
	if len(c.otherCodecs) > 0 {
		o = append(o, jsonField{"video.codecs", c.otherCodecs})
	}
	o = append(
		o,
		jsonField{"video.fps", fpsNumber(rate)},
		jsonField{"video.channels", channels},
		jsonField{"has_audio", false},
		jsonField{"is_depth_map", f.Depth != nil},
	)
	if d := f.Depth; d != nil {
		o = append(
			o,
			jsonField{"video.depth_min", d.Min},
			jsonField{"video.depth_max", d.Max},
			jsonField{"video.shift", d.Shift},
			jsonField{"video.use_log", d.Log},
			jsonField{"depth_unit", d.Unit},
		)
	}
	return o
}

// pixelFormat returns the pixel format that the codec configuration states, or "" if it is unknown.
func pixelFormat(e *video.SampleEntry, depth bool) string {
	if depth {
		return "gray12le"
	}
	config := e.Extradata
	switch {
	case e.Codec == video.AV1 && len(config) >= 3:
		// Bits of byte 2 of av1C: 0x40 high bit depth, 0x20 twelve bits, 0x10 monochrome, 8 and 4
		// chroma subsampling in x and y.
		high, mono := config[2]&0x40 != 0, config[2]&0x10 != 0
		sx, sy := config[2]&8 != 0, config[2]&4 != 0
		name := "yuv444p"
		switch {
		case mono:
			name = "gray"
		case sx && sy:
			name = "yuv420p"
		case sx:
			name = "yuv422p"
		}
		switch {
		case high && config[2]&0x20 != 0:
			name += "12le"
		case high:
			name += "10le"
		}
		return name
	// Byte 1 of avcC is the profile. 110, 122 and 244 have more bits or less subsampling.
	case e.Codec == video.H264 && len(config) >= 2 &&
		config[1] != 110 && config[1] != 122 && config[1] != 244:
		if e.FullRange {
			return "yuvj420p"
		}
		return "yuv420p"
	case e.Codec == video.MPEG4:
		return "yuv420p"
	// Bytes 16 and 17 of hvcC hold the chroma format and the bit depth minus 8.
	case e.Codec == video.HEVC && len(config) > 18:
		name := map[byte]string{0: "gray", 1: "yuv420p", 2: "yuv422p", 3: "yuv444p"}[config[16]&3]
		if depth := 8 + int(config[17]&7); depth > 8 {
			name += strconv.Itoa(depth) + "le"
		}
		return name
	}
	return ""
}
