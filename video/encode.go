package video

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
)

// EncodeConfig says how frames are encoded. Zero values mean LeRobot's defaults.
type EncodeConfig struct {
	Codec         Codec // AV1 (default), H264, HEVC; with Gray12 always HEVC
	Width, Height int
	Rate          robocache.Rate
	GOP           int    // frames from one sync sample to the next; default 2
	CRF           int    // default 30 (AV1), 23 (H.264), 28 (HEVC); without meaning for Gray12, which is lossless
	Preset        string // the encoder's own name or number; default "12" (AV1), the encoder's own for others
	Gray12        bool   // 12-bit depth codes, lossless; frames are little-endian uint16 ≤ 4095
	FFmpeg        string // the program; default: "ffmpeg" of the PATH
}

const opEncode = "encode video"

const encoderHint = "install an ffmpeg built with %s (Debian: apt-get install ffmpeg), or name one in EncodeConfig.FFmpeg"

func (c EncodeConfig) withDefaults() EncodeConfig {
	if c.Gray12 {
		c.Codec = HEVC
	}
	if c.Codec == "" {
		c.Codec = AV1
	}
	if c.GOP <= 0 {
		c.GOP = 2
	}
	if c.CRF <= 0 {
		c.CRF = map[Codec]int{AV1: 30, H264: 23, HEVC: 28}[c.Codec]
	}
	if c.Preset == "" && c.Codec == AV1 {
		c.Preset = "12"
	}
	if c.FFmpeg == "" {
		c.FFmpeg = "ffmpeg"
	}
	return c
}

// FrameBytes is the size of one frame given to Write.
func (c EncodeConfig) FrameBytes() int {
	if c.Gray12 {
		return 2 * c.Width * c.Height
	}
	return 3 * c.Width * c.Height
}

// Encoder writes frames into an mp4 through an ffmpeg found at run time. The same frames, configuration and ffmpeg give the same bytes.
//
// Colour goes to yuv420p by BT.601 in limited range, untagged: what a reader assumes where nothing is said. Odd sizes go to yuv444p in H.264
// and HEVC. GOPs are closed and frames are not reordered, so that any run of GOPs can be joined (Concat).
type Encoder struct {
	cfg    EncodeConfig
	path   string
	ctx    context.Context
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr tail
	frames int
	err    error
	ended  bool
}

// NewEncoder starts an encoder that writes to path, which must not exist or be the caller's own temporary file.
// ErrUnsupported where no ffmpeg is found, or it lacks the encoder.
func NewEncoder(ctx context.Context, path string, cfg EncodeConfig) (*Encoder, error) {
	cfg = cfg.withDefaults()
	name, err := cfg.check()
	if err != nil {
		return nil, err
	}
	program, err := findEncoder(ctx, cfg.FFmpeg, name)
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": path})
	}
	args, err := cfg.arguments(name, abs)
	if err != nil {
		return nil, err
	}
	e := &Encoder{cfg: cfg, path: abs, ctx: ctx, cmd: exec.CommandContext(ctx, program, args...)}
	e.cmd.Stderr = &e.stderr
	e.cmd.Env = append(os.Environ(), "SVT_LOG=1") // errors only
	e.cmd.WaitDelay = 5 * time.Second
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		return nil, robocache.At(err, robocache.Where{"file": path})
	}
	if err := e.cmd.Start(); err != nil {
		return nil, &robocache.Error{Class: robocache.Classify(err), Op: opEncode, Where: robocache.Where{"program": program}, Err: err}
	}
	return e, nil
}

// check gives the name of ffmpeg's encoder, and refuses what it cannot do.
func (c EncodeConfig) check() (string, error) {
	misuse := func(format string, args ...any) (string, error) {
		return "", &robocache.Error{Class: robocache.ErrMisuse, Op: opEncode, Msg: fmt.Sprintf(format, args...)}
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > 16384 || c.Height > 16384 {
		return misuse("a frame of %d×%d", c.Width, c.Height)
	}
	if c.Rate.Num <= 0 || c.Rate.Den <= 0 {
		return misuse("no rate")
	}
	name := map[Codec]string{AV1: "libsvtav1", H264: "libx264", HEVC: "libx265"}[c.Codec]
	if name == "" {
		return "", &robocache.Error{Class: robocache.ErrUnsupported, Op: opEncode, Msg: "no encoder for " + strconv.Quote(string(c.Codec)), Hint: "av1, h264 or hevc"}
	}
	if c.Codec == AV1 && (c.Width < 64 || c.Height < 64 || c.Width%2+c.Height%2 > 0) {
		return "", &robocache.Error{Class: robocache.ErrUnsupported, Op: opEncode, Msg: fmt.Sprintf("libsvtav1 takes even sizes from 64 on, not %d×%d", c.Width, c.Height), Hint: "use h264"}
	}
	if c.Codec != AV1 && c.Preset != "" && strings.Trim(c.Preset, "abcdefghijklmnopqrstuvwxyz") != "" {
		return misuse("preset %q", c.Preset)
	}
	return name, nil
}

func (c EncodeConfig) arguments(name, path string) ([]string, error) {
	timescale, _, err := TrackTimescale(c.Rate)
	if err != nil {
		return nil, err
	}
	input, output := "rgb24", "yuv420p"
	switch {
	case c.Gray12:
		input, output = "gray12le", "gray12le"
	case c.Width%2+c.Height%2 > 0:
		output = "yuv444p"
	}
	scale := strconv.FormatInt(timescale, 10)
	args := []string{
		"-hide_banner", "-nostdin", "-loglevel", "error", "-y", "-protocol_whitelist", "file,pipe",
		"-f", "rawvideo", "-pix_fmt", input, "-video_size", fmt.Sprintf("%dx%d", c.Width, c.Height), "-framerate", fmt.Sprintf("%d/%d", c.Rate.Num, c.Rate.Den), "-i", "pipe:0",
		"-map", "0:v:0", "-map_metadata", "-1", "-c:v", name, "-pix_fmt", output, "-g", strconv.Itoa(c.GOP),
	}
	if c.Preset != "" {
		args = append(args, "-preset", c.Preset)
	}
	// Threads that change the bytes are fixed: a machine with more cores must not write another file.
	switch {
	case c.Gray12:
		args = append(args, "-x265-params", fmt.Sprintf("lossless=1:keyint=%d:min-keyint=%d:bframes=0:open-gop=0:scenecut=0:frame-threads=1:info=0:log-level=error", c.GOP, c.GOP), "-tag:v", "hvc1")
	case c.Codec == HEVC:
		args = append(args, "-crf", strconv.Itoa(c.CRF), "-x265-params", fmt.Sprintf("keyint=%d:min-keyint=%d:bframes=0:open-gop=0:scenecut=0:frame-threads=1:info=0:log-level=error", c.GOP, c.GOP), "-tag:v", "hvc1")
	case c.Codec == H264:
		// The filter takes out the note of x264's version and options.
		args = append(args, "-crf", strconv.Itoa(c.CRF), "-bf", "0", "-flags", "+cgop", "-sc_threshold", "0", "-threads", "1", "-bsf:v", "filter_units=remove_types=6")
	default:
		args = append(args, "-crf", strconv.Itoa(c.CRF), "-svtav1-params", "fast-decode=0")
	}
	return append(args, "-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart", "-use_editlist", "0",
		"-video_track_timescale", scale, "-movie_timescale", scale, "-f", "mp4", "file:"+path), nil
}

// listingTime is what a program may take to list its encoders: a tenth of a second where nothing is in its way, over 20 seconds on a machine
// that was busy with other work.
var listingTime = 2 * time.Minute

// listed remembers which encoders a program has.
var listed sync.Map // path of the program → string, the list

// findEncoder finds the program, and sees whether it has the encoder.
func findEncoder(ctx context.Context, program, encoder string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &robocache.Error{Class: robocache.ErrUnsupported, Op: opEncode, Msg: "no ffmpeg to encode with", Err: err, Hint: fmt.Sprintf(encoderHint, encoder)}
	}
	list, ok := listed.Load(path)
	if !ok {
		limit, cancel := context.WithTimeout(ctx, listingTime)
		defer cancel()
		out, err := exec.CommandContext(limit, path, "-hide_banner", "-loglevel", "error", "-encoders").Output()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return "", ctx.Err()
		case limit.Err() != nil:
			return "", &robocache.Error{Class: robocache.ErrTemporary, Op: opEncode, Where: robocache.Where{"program": path}, Msg: fmt.Sprintf("did not list its encoders within %v", listingTime), Hint: "try again when the machine is less busy"}
		default:
			return "", &robocache.Error{Class: robocache.ErrUnsupported, Op: opEncode, Where: robocache.Where{"program": path}, Msg: "does not list its encoders", Err: err, Hint: fmt.Sprintf(encoderHint, encoder)}
		}
		list = string(out)
		listed.Store(path, list)
	}
	if !strings.Contains(list.(string), " "+encoder+" ") {
		return "", &robocache.Error{Class: robocache.ErrUnsupported, Op: opEncode, Where: robocache.Where{"program": path}, Msg: "this ffmpeg has no " + encoder, Hint: fmt.Sprintf(encoderHint, encoder)}
	}
	return path, nil
}

// CanEncode says why cfg cannot be encoded on this machine; nil where it can.
func CanEncode(ctx context.Context, cfg EncodeConfig) error {
	cfg = cfg.withDefaults()
	name, err := cfg.check()
	if err == nil {
		_, err = findEncoder(ctx, cfg.FFmpeg, name)
	}
	return err
}

// Write encodes one frame: RGB rows of three bytes a pixel, or little-endian uint16 for Gray12. It blocks while the encoder is busy.
func (e *Encoder) Write(pic []byte) error {
	if e.err != nil {
		return e.err
	}
	if e.ended {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: opEncode, Msg: "the encoder is closed"}
	}
	if len(pic) != e.cfg.FrameBytes() {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: opEncode, Where: robocache.Where{"index": e.frames}, Want: fmt.Sprintf("%d bytes for a frame of %d×%d", e.cfg.FrameBytes(), e.cfg.Width, e.cfg.Height), Got: fmt.Sprint(len(pic))}
	}
	if _, err := e.stdin.Write(pic); err != nil {
		return e.fail(err)
	}
	e.frames++
	return nil
}

// Close ends the file, reads its index back, and compares: as many samples as frames, on the grid, the first one a sync sample.
// Where anything failed, the file is removed.
func (e *Encoder) Close() error {
	if e.ended {
		return e.err
	}
	if e.frames == 0 {
		e.Abort()
		e.err = &robocache.Error{Class: robocache.ErrMisuse, Op: opEncode, Where: robocache.Where{"file": e.path}, Msg: "no frame was written"}
		return e.err
	}
	if err := e.stdin.Close(); err != nil {
		return e.fail(err)
	}
	e.ended = true
	if err := e.cmd.Wait(); err != nil {
		return e.failed(err)
	}
	if err := e.verify(); err != nil {
		if strings.Contains(e.stderr.String(), noSpace) {
			return e.failed(err) // some releases of ffmpeg end with success although the disk was full
		}
		e.err = err
		_ = os.Remove(e.path)
	}
	return e.err
}

// noSpace is how ffmpeg tells of ENOSPC.
const noSpace = "No space left"

// Failed is what ended the encoder before Close; nil while it takes frames.
func (e *Encoder) Failed() error {
	if e.ended {
		return e.err
	}
	return nil
}

// Abort kills the encoder and removes the file. After Close it does nothing.
func (e *Encoder) Abort() {
	if e.ended {
		return
	}
	e.ended = true
	_ = e.cmd.Process.Kill()
	_ = e.stdin.Close()
	_ = e.cmd.Wait()
	_ = os.Remove(e.path)
}

// fail ends the program after a failed write, and says what it said.
func (e *Encoder) fail(cause error) error {
	e.ended = true
	_ = e.stdin.Close()
	if err := e.cmd.Wait(); err != nil {
		cause = err
	}
	return e.failed(cause)
}

func (e *Encoder) failed(cause error) error {
	_ = os.Remove(e.path)
	if err := e.ctx.Err(); err != nil {
		e.err = err
		return err
	}
	class := robocache.ErrUnsupported
	said := e.stderr.String()
	for text, c := range map[string]error{noSpace: robocache.ErrResourceLimit, "Cannot allocate memory": robocache.ErrResourceLimit, "Permission denied": robocache.ErrMisuse, "No such file": robocache.ErrNotFound} {
		if strings.Contains(said, text) {
			class = c
		}
	}
	e.err = &robocache.Error{Class: class, Op: opEncode, Where: robocache.Where{"file": e.path, "index": e.frames}, Msg: "ffmpeg failed: " + said, Err: cause}
	return e.err
}

func (e *Encoder) verify() error {
	wrong := func(want, got string) error {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: opEncode, Where: robocache.Where{"file": e.path}, Want: want, Got: got, Hint: "the encoder lost or moved frames; use another ffmpeg"}
	}
	f, err := os.Open(e.path)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": e.path})
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return robocache.At(err, robocache.Where{"file": e.path})
	}
	ix, err := ReadIndex(e.ctx, &written{f, st.Size()}, Limits{})
	if err != nil {
		return robocache.At(err, robocache.Where{"file": e.path})
	}
	if ix.NumFrames() != e.frames || ix.NumSamples() != e.frames {
		return wrong(fmt.Sprintf("%d frames", e.frames), fmt.Sprintf("%d frames in %d samples", ix.NumFrames(), ix.NumSamples()))
	}
	timescale, delta, err := TrackTimescale(e.cfg.Rate)
	if err != nil {
		return err
	}
	if ix.Timescale() != timescale || !ix.Sample(0).Sync {
		return wrong(fmt.Sprintf("timescale %d, beginning with a sync sample", timescale), fmt.Sprintf("%d, %v", ix.Timescale(), ix.Sample(0).Sync))
	}
	for k := range e.frames {
		if ix.PTS(k) != int64(k)*delta {
			return wrong(fmt.Sprintf("frame %d at %d", k, int64(k)*delta), fmt.Sprint(ix.PTS(k)))
		}
	}
	return nil
}

// written reads back a file that was just written.
type written struct {
	f    *os.File
	size int64
}

func (w *written) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := w.f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
func (w *written) Size() int64     { return w.size }
func (w *written) Version() string { return "" }
func (w *written) Close() error    { return nil }

// tail keeps the last bytes of what a program says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 4096 {
		t.b = append(t.b[:0], t.b[len(t.b)-2048:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.b)), "?")
}
