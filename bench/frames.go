package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
)

// checked is what came of comparing delivered frames with the ffmpeg program.
type checked struct {
	done    bool
	Checked int // frames that a neighbour could not have passed for
	Wrong   int
	Where   []string // the first wrong ones
	Note    string   // why there are none, or fewer
}

const (
	// pixelTolerance is what a value of RGB may differ by: another conversion of the same planes.
	pixelTolerance = 2
	// neighbourGap: a frame checks the order only where both its neighbours differ from it by more than both conversions may.
	neighbourGap = 2 * pixelTolerance
	// meanTolerance and meanGap are the same for peers, whose converters and scalers differ more: means over a frame.
	meanTolerance, meanGap = 3.0, 0.5
)

// delivered is a frame as a runner delivered it.
type delivered struct {
	deliveredAt
	data []byte
}

func readDelivered(path string) ([]delivered, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": path})
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var out []delivered
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out, nil
		}
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"file": path})
		}
		var d delivered
		if err := json.Unmarshal(line, &d.deliveredAt); err != nil {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Where: robocache.Where{"file": path}, Msg: "delivered frames", Err: err}
		}
		n := 1
		for _, s := range d.Shape {
			n *= s
		}
		if d.DType == "float32" {
			n *= 4
		}
		d.data = make([]byte, n)
		if _, err := io.ReadFull(r, d.data); err != nil {
			return nil, robocache.At(err, robocache.Where{"file": path})
		}
		out = append(out, d)
	}
}

// pixels are the values as RGB bytes, channels first.
func (d *delivered) pixels() ([]byte, error) {
	switch d.DType {
	case "uint8":
		return d.data, nil
	case "float32":
		out := make([]byte, len(d.data)/4)
		for i := range out {
			v := 255 * math.Float32frombits(binary.LittleEndian.Uint32(d.data[4*i:]))
			out[i] = byte(max(0, min(255, math.Round(float64(v)))))
		}
		return out, nil
	}
	return nil, fmt.Errorf("frames of %s are not compared", d.DType)
}

// wantedFrame is a delivered frame and the place that it must have come from.
type wantedFrame struct {
	delivered
	ordinal int
}

// checkFrames compares frames with a sequential decode by the ffmpeg program. near: by the mean difference, scaled frames too.
func checkFrames(ctx context.Context, ref *reference, images []delivered, near bool) (checked, error) {
	c := checked{done: true}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		return checked{Note: "no ffmpeg program to compare frames with"}, nil
	}
	ds := ref.ds
	byFile := map[string][]wantedFrame{}
	var paths []string
	for _, d := range images {
		if d.Key == "" {
			d.Key = (&Workload{Video: "one"}).cameras(ds.Info())[0]
		}
		f := ds.Info().Feature(d.Key)
		if f == nil || d.Episode < 0 || d.Episode >= ds.Info().Episodes {
			return c, fmt.Errorf("a frame of %s in episode %d: there is none", d.Key, d.Episode)
		}
		if f.Depth != nil || len(d.Shape) != 3 || d.Shape[0] != 3 {
			c.Note = "frames of depth are not compared"
			continue
		}
		row := max(0, min(d.Row+d.Offset, ds.Len(d.Episode)-1))
		refs := make([]robocache.FrameRef, 1)
		if err := ds.Frames(ctx, d.Key, []robocache.Row{{Episode: d.Episode, Index: row}}, refs); err != nil {
			return c, err
		}
		if refs[0].Path == "" {
			c.Note = "still images are not compared"
			continue
		}
		report.Find(&paths, refs[0].Path)
		byFile[refs[0].Path] = append(byFile[refs[0].Path], wantedFrame{d, refs[0].Ordinal})
	}
	slices.Sort(paths)
	for _, p := range paths {
		if err := c.file(ctx, filepath.Join(ref.root, p), p, byFile[p], near); err != nil {
			return c, err
		}
	}
	return c, nil
}

// file compares the frames of one file.
func (c *checked) file(ctx context.Context, path, name string, wants []wantedFrame, near bool) error {
	width, height, err := sizeOf(ctx, path)
	if err != nil {
		return err
	}
	scaled := wants[0].Shape[1] != height || wants[0].Shape[2] != width
	if scaled && !near {
		c.Note = "frames are resized: not compared"
		return nil
	}
	need := map[int][]byte{} // frame number → RGB, channels first
	for _, w := range wants {
		need[w.ordinal-1], need[w.ordinal], need[w.ordinal+1] = nil, nil, nil
	}
	size := [2]int{width, height}
	if scaled {
		size = [2]int{wants[0].Shape[2], wants[0].Shape[1]}
	}
	decoded, err := openFrames(ctx, path, name, size, scaled)
	if err != nil {
		return err
	}
	defer decoded.close()
	var order []int
	for k := range need {
		order = append(order, k)
	}
	slices.Sort(order)
	for _, k := range order {
		if k < 0 {
			continue
		}
		if need[k], err = decoded.at(k); err != nil {
			break // the end, or what ffmpeg says of a frame that is wanted
		}
	}
	for _, w := range wants {
		truth := need[w.ordinal]
		if truth == nil {
			return fmt.Errorf("ffmpeg gives no frame %d of %s: %w", w.ordinal, name, err)
		}
		got, err := w.pixels()
		if err != nil {
			c.Note = err.Error()
			continue
		}
		most, mean := distance(got, truth)
		wrong, telling := most > pixelTolerance, true
		if near {
			wrong = mean > meanTolerance
		}
		for _, k := range []int{w.ordinal - 1, w.ordinal + 1} {
			if n := need[k]; n != nil {
				most, apart := distance(n, truth)
				telling = telling && (!near && most > neighbourGap || near && apart >= meanGap)
				if near && apart >= meanGap {
					_, other := distance(got, n)
					wrong = wrong || other < mean
				}
			}
		}
		if wrong {
			c.Wrong++
			if len(c.Where) < 5 {
				c.Where = append(c.Where, fmt.Sprintf("%s frame %d (%s, episode %d, row %d)", name, w.ordinal, w.Key, w.Episode, w.Row))
			}
		}
		if wrong || telling {
			c.Checked++
		}
	}
	return nil
}

func sizeOf(ctx context.Context, path string) (width, height int, err error) {
	out, err := exec.CommandContext(ctx, "ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "stream=width,height", "-of", "csv=p=0", path).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("ffprobe on %s: %w", filepath.Base(path), err)
	}
	if _, err := fmt.Sscanf(string(out), "%d,%d", &width, &height); err != nil || width < 1 || height < 1 {
		return 0, 0, fmt.Errorf("ffprobe on %s says %q", filepath.Base(path), out)
	}
	return width, height, nil
}

// fileFrames is a sequential decode of one file by the ffmpeg program.
type fileFrames struct {
	name   string
	next   int // number of the frame that comes next
	packed []byte
	cmd    *exec.Cmd
	out    io.Reader
	errs   bytes.Buffer
	stop   context.CancelFunc
}

// openFrames begins to decode a file, to its own size or scaled to another.
func openFrames(ctx context.Context, path, name string, size [2]int, scaled bool) (*fileFrames, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &fileFrames{name: name, packed: make([]byte, 3*size[0]*size[1]), stop: stop}
	args := []string{"-nostdin", "-v", "error", "-threads", "1", "-i", path, "-map", "0:v:0", "-fps_mode", "passthrough"}
	if scaled {
		args = append(args, "-vf", fmt.Sprintf("scale=%d:%d:flags=area", size[0], size[1]))
	}
	f.cmd = exec.CommandContext(ctx, "ffmpeg", append(args, "-sws_flags", "bilinear", "-pix_fmt", "rgb24", "-f", "rawvideo", "-")...)
	f.cmd.Stderr = &f.errs
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	f.out = bufio.NewReaderSize(out, 1<<20)
	return f, nil
}

// at gives the frame of a number that is not behind, channels first.
func (f *fileFrames) at(ordinal int) ([]byte, error) {
	for {
		if _, err := io.ReadFull(f.out, f.packed); err != nil {
			return nil, fmt.Errorf("ffmpeg gives no frame %d of %s: %w", f.next, f.name, err)
		}
		f.next++
		if f.next == ordinal+1 {
			return planar(f.packed), nil
		}
	}
}

func (f *fileFrames) close() {
	if f != nil {
		f.stop()
		_ = f.cmd.Wait() // killed
	}
}

func planar(packed []byte) []byte {
	n := len(packed) / 3
	out := make([]byte, len(packed))
	r, g, b := out[:n], out[n:2*n], out[2*n:]
	for i := range n {
		r[i], g[i], b[i] = packed[3*i], packed[3*i+1], packed[3*i+2]
	}
	return out
}

// distance is the largest difference of two values at one position, and the mean.
func distance(a, b []byte) (most int, mean float64) {
	if len(a) != len(b) {
		return 256, 256
	}
	sum := 0
	for i := range a {
		d := int(a[i]) - int(b[i])
		d = max(d, -d)
		most, sum = max(most, d), sum+d
	}
	return most, float64(sum) / float64(max(len(a), 1))
}
