package video

import (
	"bytes"
	"cmp"
	"context"
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
	"github.com/goatnote-inc/robocache/store"
)

// EncodeConfig holds the options of an Encoder. Zero values select LeRobot's defaults.
type EncodeConfig struct {
	Codec         Codec // AV1 (default), H264 or HEVC; with Gray12 always HEVC
	Width, Height int
	Rate          robocache.Rate
	GOP           int // frames from one sync sample to the next; default 2
	// default 30 (AV1), 23 (H.264), 28 (HEVC); unused with Gray12, which is lossless
	CRF int
	// a preset of the encoder; default "12" (AV1), otherwise the encoder's default
	Preset string
	Gray12 bool   // 12-bit depth codes, lossless; frames are little-endian uint16 ≤ 4095
	FFmpeg string // path of the program; default "ffmpeg" from PATH
	// run the program with low priority, because a robot's control loop is more important
	Behind bool
}

const opEncode = "encode video"

const encoderHint = "install an ffmpeg built with %s (Debian: apt-get install ffmpeg), " +
	"or name one in EncodeConfig.FFmpeg"

// encoders lists ffmpeg's encoders and their default options. Threading options that change the
// output are fixed, so that the file does not depend on the number of cores. The filter for H.264
// removes x264's note with its version and options.
var encoders = map[Codec]struct {
	name   string
	crf    int
	preset string
	args   string
}{
	AV1: {"libsvtav1", 30, "12", "-svtav1-params fast-decode=0"},
	H264: {
		"libx264",
		23,
		"",
		"-bf 0 -flags +cgop -sc_threshold 0 -threads 1 -bsf:v filter_units=remove_types=6",
	},
	HEVC: {
		"libx265",
		28,
		"",
		"-tag:v hvc1 -x265-params keyint=GOP:min-keyint=GOP:bframes=0:open-gop=0:" +
			"scenecut=0:frame-threads=1:info=0:log-level=error",
	},
}

// encodeError returns an error of an encoder. hint and cause may be empty.
func encodeError(
	class error,
	where robocache.Where,
	msg, hint string,
	cause error,
) *robocache.Error {
	return robocache.NewError(class, opEncode, where, "%s", msg).
		WithCause(cause).
		WithHint("%s", hint)
}

// withDefaults returns the options with defaults for zero values.
func (c EncodeConfig) withDefaults() EncodeConfig {
	if c.Gray12 {
		c.Codec = HEVC
	}
	c.Codec = cmp.Or(c.Codec, AV1)
	orDefault(&c.GOP, 2)
	orDefault(&c.CRF, encoders[c.Codec].crf)
	c.Preset = cmp.Or(c.Preset, encoders[c.Codec].preset)
	c.FFmpeg = cmp.Or(c.FFmpeg, "ffmpeg")
	return c
}

// FrameBytes returns the size of a frame that Write accepts.
func (c EncodeConfig) FrameBytes() int {
	if c.Gray12 {
		return 2 * c.Width * c.Height
	}
	return 3 * c.Width * c.Height
}

// Encoder writes frames to an mp4 through an ffmpeg program found at run time. The same frames,
// configuration and ffmpeg produce the same bytes.
//
// Color is converted to yuv420p by BT.601 in limited range, and the file carries no color tags:
// readers assume these values by default. Odd sizes become yuv444p in H.264 and HEVC. GOPs are
// closed and frames are not reordered, so that any run of GOPs can be joined with Concat.
//
// An Encoder must be used by one goroutine at a time. The caller must call Close or Abort.
type Encoder struct {
	cfg    EncodeConfig
	path   string
	ctx    context.Context
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr outputTail
	frames int
	err    error
	ended  bool
}

// NewEncoder starts an encoder that writes to path. path must not exist, or must be the caller's
// temporary file. It returns ErrUnsupported if there is no ffmpeg or it lacks the encoder.
func NewEncoder(ctx context.Context, path string, cfg EncodeConfig) (_ *Encoder, err error) {
	cfg = cfg.withDefaults()
	program, err := cfg.findEncoder(ctx)
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": path})
	}
	args, err := cfg.ffmpegArguments(abs)
	if err != nil {
		return nil, err
	}
	e := &Encoder{cfg: cfg, path: abs, ctx: ctx, cmd: exec.CommandContext(ctx, program, args...)}
	e.stderr.diskFull = func() { _ = e.cmd.Process.Kill() }
	e.cmd.Stderr = &e.stderr
	e.cmd.Env = append(os.Environ(), "SVT_LOG=1") // print errors only
	e.cmd.WaitDelay = 5 * time.Second
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		return nil, robocache.At(err, robocache.Where{"file": path})
	}
	if err := startProgram(e.cmd, cfg.Behind); err != nil {
		return nil, encodeError(
			robocache.Classify(err),
			robocache.Where{"program": program},
			"",
			"",
			err,
		)
	}
	return e, nil
}

// checkSupported returns an error if ffmpeg's encoder cannot encode such frames.
func (c EncodeConfig) checkSupported() error {
	class, msg, hint := robocache.ErrMisuse, "", ""
	switch {
	case c.Width <= 0 || c.Height <= 0 || c.Width > 16384 || c.Height > 16384:
		msg = fmt.Sprintf("unsupported frame size %d×%d", c.Width, c.Height)
	case c.Rate.Num <= 0 || c.Rate.Den <= 0:
		msg = "the frame rate is missing"
	case encoders[c.Codec].name == "":
		class = robocache.ErrUnsupported
		msg = "no encoder for " + strconv.Quote(string(c.Codec))
		hint = "use av1, h264 or hevc"
	case c.Codec == AV1 && (c.Width < 64 || c.Height < 64 || c.Width%2+c.Height%2 > 0):
		class = robocache.ErrUnsupported
		msg = fmt.Sprintf("libsvtav1 needs even sizes of at least 64, not %d×%d", c.Width, c.Height)
		hint = "use h264"
	case c.Codec != AV1 && strings.Trim(c.Preset, "abcdefghijklmnopqrstuvwxyz") != "":
		msg = fmt.Sprintf("unsupported preset %q", c.Preset)
	default:
		return nil
	}
	return encodeError(class, nil, msg, hint, nil)
}

// ffmpegArguments returns the command line arguments for an output at path.
func (c EncodeConfig) ffmpegArguments(path string) ([]string, error) {
	timescale, _, err := TrackTimescale(c.Rate)
	if err != nil {
		return nil, err
	}
	encoder, gop, scale := encoders[c.Codec], strconv.Itoa(c.GOP), strconv.FormatInt(timescale, 10)
	input, output := "rgb24", "yuv420p"
	quality := "-crf " + strconv.Itoa(c.CRF) + " " + encoder.args
	switch {
	case c.Gray12:
		input, output = "gray12le", "gray12le"
		quality = strings.Replace(encoder.args, "keyint=", "lossless=1:keyint=", 1)
	case c.Width%2+c.Height%2 > 0: // 4:2:0 needs even sizes
		output = "yuv444p"
	}
	args := []string{
		"-hide_banner",
		"-nostdin",
		"-loglevel",
		"error",
		"-y",
		"-protocol_whitelist",
		"file,pipe",
		"-f",
		"rawvideo",
		"-pix_fmt",
		input,
		"-video_size",
		fmt.Sprintf("%dx%d", c.Width, c.Height),
		"-framerate",
		fmt.Sprintf("%d/%d", c.Rate.Num, c.Rate.Den),
		"-i",
		"pipe:0",
		"-map",
		"0:v:0",
		"-map_metadata",
		"-1",
		"-c:v",
		encoder.name,
		"-pix_fmt",
		output,
		"-g",
		gop,
	}
	if c.Preset != "" {
		args = append(args, "-preset", c.Preset)
	}
	args = append(args, strings.Fields(strings.ReplaceAll(quality, "GOP", gop))...)
	return append(args, "-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart",
		"-use_editlist", "0", "-video_track_timescale", scale, "-movie_timescale", scale, "-f",
		"mp4", "file:"+path), nil
}

// listingTime is the time limit for listing the encoders of a program. It takes 0.1 seconds
// normally, and took over 20 seconds on a busy machine.
var listingTime = 2 * time.Minute

// listed caches the encoder lists of programs.
var listed sync.Map // program path → encoder list (string)

// findEncoder returns the path of the program, or an error if it lacks the encoder.
func (c EncodeConfig) findEncoder(ctx context.Context) (_ string, err error) {
	if err := c.checkSupported(); err != nil {
		return "", err
	}
	encoder := encoders[c.Codec].name
	hint := fmt.Sprintf(encoderHint, encoder)
	path, err := exec.LookPath(c.FFmpeg)
	if err != nil {
		return "", encodeError(
			robocache.ErrUnsupported,
			nil,
			"no ffmpeg program was found",
			hint,
			err,
		)
	}
	where := robocache.Where{"program": path}
	list, ok := listed.Load(path)
	if !ok {
		limit, cancel := context.WithTimeout(ctx, listingTime)
		defer cancel()
		out, err := exec.CommandContext(limit, path, "-hide_banner", "-loglevel", "error",
			"-encoders").
			Output()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return "", ctx.Err()
		case limit.Err() != nil:
			return "", encodeError(
				robocache.ErrTemporary,
				where,
				fmt.Sprintf("did not list its encoders within %v", listingTime),
				"try again when the machine is less busy",
				nil,
			)
		default:
			return "", encodeError(
				robocache.ErrUnsupported,
				where,
				"does not list its encoders",
				hint,
				err,
			)
		}
		list = string(out)
		listed.Store(path, list)
	}
	if !strings.Contains(list.(string), " "+encoder+" ") {
		return "", encodeError(
			robocache.ErrUnsupported,
			where,
			"this ffmpeg has no "+encoder,
			hint,
			nil,
		)
	}
	return path, nil
}

// CanEncode returns nil if this machine can encode with cfg, or an error with the reason.
func CanEncode(ctx context.Context, cfg EncodeConfig) error {
	_, err := cfg.withDefaults().findEncoder(ctx)
	return err
}

// Write encodes one frame: RGB rows with 3 bytes per pixel, or little-endian uint16 for Gray12. It
// blocks while the encoder is busy.
func (e *Encoder) Write(pic []byte) error {
	if e.err != nil {
		return e.err
	}
	if e.ended {
		return encodeError(robocache.ErrMisuse, nil, "the encoder is closed", "", nil)
	}
	if len(pic) != e.cfg.FrameBytes() {
		return robocache.Misuse(opEncode, robocache.Where{"index": e.frames}, "").
			Expected(
				fmt.Sprintf(
					"%d bytes for a frame of %d×%d",
					e.cfg.FrameBytes(),
					e.cfg.Width,
					e.cfg.Height,
				),
				fmt.Sprint(len(pic)),
			)
	}
	if _, err := e.stdin.Write(pic); err != nil {
		return e.stopAndFail(err)
	}
	e.frames++
	return nil
}

// Close finishes the file and verifies its index: as many samples as frames, at the expected times,
// beginning with a sync sample. On error, the file is removed.
func (e *Encoder) Close() error {
	if e.ended {
		return e.err
	}
	if e.frames == 0 {
		e.Abort()
		e.err = encodeError(
			robocache.ErrMisuse,
			robocache.Where{"file": e.path},
			"no frame was written",
			"",
			nil,
		)
		return e.err
	}
	if err := e.stdin.Close(); err != nil {
		return e.stopAndFail(err)
	}
	e.ended = true
	if err := e.cmd.Wait(); err != nil {
		return e.reportFailure(err)
	}
	if err := e.verifyFile(); err != nil {
		if strings.Contains(e.stderr.String(), noSpace) {
			// some releases of ffmpeg exit with success although the disk was full
			return e.reportFailure(err)
		}
		e.err = err
		_ = os.Remove(e.path)
	}
	return e.err
}

// noSpace is ffmpeg's message for ENOSPC. With libsvtav1 some releases then hang and must be killed
// after fullDiskWait.
const noSpace = "No space left"

const fullDiskWait = 2 * time.Second

// Failed returns the error that ended the encoder before Close, or nil.
func (e *Encoder) Failed() error {
	if e.ended {
		return e.err
	}
	return nil
}

// Abort kills the encoder and removes the file. It does nothing after Close.
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

// stopAndFail stops the program after a failed write and returns an error with its output.
func (e *Encoder) stopAndFail(cause error) error {
	e.ended = true
	_ = e.stdin.Close()
	if err := e.cmd.Wait(); err != nil {
		cause = err
	}
	return e.reportFailure(cause)
}

// reportFailure removes the file and returns an error with the class that matches the output of
// ffmpeg.
func (e *Encoder) reportFailure(cause error) error {
	_ = os.Remove(e.path)
	if err := e.ctx.Err(); err != nil {
		e.err = err
		return err
	}
	class := robocache.ErrUnsupported
	output := e.stderr.String()
	for text, c := range map[string]error{
		noSpace:                  robocache.ErrResourceLimit,
		"Cannot allocate memory": robocache.ErrResourceLimit,
		"Permission denied":      robocache.ErrMisuse,
		"No such file":           robocache.ErrNotFound,
	} {
		if strings.Contains(output, text) {
			class = c
		}
	}
	e.err = encodeError(
		class,
		robocache.Where{"file": e.path, "index": e.frames},
		"ffmpeg failed: "+output,
		"",
		cause,
	)
	return e.err
}

// verifyFile compares the index of the written file with the frames that were passed to Write.
func (e *Encoder) verifyFile() (err error) {
	defer robocache.LocateIn(&err, "file", e.path)
	same := func(ok bool, want, got string) error {
		if !ok {
			return robocache.Malformed(opEncode, nil, "").Expected(want, got).
				WithHint("the encoder lost or moved frames; use another ffmpeg")
		}
		return nil
	}
	dir, err := store.OpenLocal(filepath.Dir(e.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.Open(e.ctx, filepath.Base(e.path))
	if err != nil {
		return err
	}
	defer f.Close()
	ix, err := ReadIndex(e.ctx, f, Limits{})
	if err != nil {
		return err
	}
	timescale, delta, err := TrackTimescale(e.cfg.Rate)
	if err != nil {
		return err
	}
	err = same(
		ix.NumFrames() == e.frames && ix.NumSamples() == e.frames,
		fmt.Sprintf("%d frames", e.frames),
		fmt.Sprintf("%d frames in %d samples", ix.NumFrames(), ix.NumSamples()),
	)
	if err != nil {
		return err
	}
	first := ix.Sample(0).Sync
	err = same(
		ix.Timescale() == timescale && first,
		fmt.Sprintf("timescale %d, beginning with a sync sample", timescale),
		fmt.Sprintf("%d, %v", ix.Timescale(), first),
	)
	if err != nil {
		return err
	}
	for k := range e.frames {
		if at := ix.PTS(k); at != int64(k)*delta {
			return same(false, fmt.Sprintf("frame %d at %d", k, int64(k)*delta), fmt.Sprint(at))
		}
	}
	return nil
}

// outputTail keeps the last bytes of a program's output. Safe for concurrent use.
type outputTail struct {
	mu       sync.Mutex
	b        []byte
	diskFull func() // called once, if the output reports a full disk
}

// Write appends output and keeps its last 2 to 4 KiB. If the output states that the disk is full,
// Write calls diskFull once, after a delay.
func (t *outputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 4096 {
		t.b = append(t.b[:0], t.b[len(t.b)-2048:]...)
	}
	if t.diskFull != nil && bytes.Contains(t.b, []byte(noSpace)) {
		time.AfterFunc(fullDiskWait, t.diskFull)
		t.diskFull = nil
	}
	return len(p), nil
}

func (t *outputTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.b)), "?")
}
