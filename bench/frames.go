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
)

// delivered is a frame as a runner handed it over.
type delivered struct {
	handedOver
	data []byte
}

func readHandedOver(path string) ([]delivered, error) {
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
		if err := json.Unmarshal(line, &d.handedOver); err != nil {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench load", Where: robocache.Where{"file": path}, Msg: "handed-over frames", Err: err}
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

// checkFrames compares frames with a sequential decode by the ffmpeg program. root is the set's local folder.
func checkFrames(ctx context.Context, ds robocache.Dataset, root string, images []delivered) (checked, error) {
	c := checked{done: true}
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		return checked{Note: "no ffmpeg program to compare frames with"}, nil
	}
	byFile := map[string][]wantedFrame{}
	for _, d := range images {
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
		byFile[refs[0].Path] = append(byFile[refs[0].Path], wantedFrame{d, refs[0].Ordinal})
	}
	paths := make([]string, 0, len(byFile))
	for p := range byFile {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		if err := c.file(ctx, program, filepath.Join(root, p), p, byFile[p]); err != nil {
			return c, err
		}
	}
	return c, nil
}

// file compares the frames of one file.
func (c *checked) file(ctx context.Context, program, path, name string, wants []wantedFrame) error {
	need := map[int][]byte{} // ordinal → RGB, channels first; nil until decoded
	last := 0
	for _, w := range wants {
		for k := w.ordinal - 1; k <= w.ordinal+1; k++ {
			need[k] = nil
		}
		last = max(last, w.ordinal+1)
	}
	width, height, err := sizeOf(ctx, path)
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-nostdin", "-v", "error", "-threads", "1", "-i", path, "-map", "0:v:0", "-fps_mode", "passthrough",
		"-frames:v", fmt.Sprint(last+1), "-sws_flags", "bilinear", "-pix_fmt", "rgb24", "-f", "rawvideo", "-")
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	packed := make([]byte, 3*width*height)
	for k := 0; ; k++ {
		if _, err := io.ReadFull(out, packed); err != nil {
			break // the end, or what ffmpeg says
		}
		if _, ok := need[k]; ok {
			need[k] = planar(packed)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ffmpeg on %s: %w: %s", name, err, lastLine(errs.String()))
	}
	for _, w := range wants {
		truth := need[w.ordinal]
		if truth == nil {
			return fmt.Errorf("ffmpeg gives no frame %d of %s", w.ordinal, name)
		}
		got, err := w.pixels()
		if err != nil {
			c.Note = err.Error()
			continue
		}
		if w.Shape[1] != height || w.Shape[2] != width {
			c.Note = "frames are resized: not compared"
			continue
		}
		if furthest(got, truth) > pixelTolerance {
			c.Wrong++
			if len(c.Where) < 5 {
				c.Where = append(c.Where, fmt.Sprintf("%s frame %d (%s, episode %d, row %d)", name, w.ordinal, w.Key, w.Episode, w.Row))
			}
			c.Checked++
			continue
		}
		telling := true
		for _, k := range []int{w.ordinal - 1, w.ordinal + 1} {
			if n := need[k]; n != nil && furthest(n, truth) <= neighbourGap {
				telling = false
			}
		}
		if telling {
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

func planar(packed []byte) []byte {
	n := len(packed) / 3
	out := make([]byte, len(packed))
	r, g, b := out[:n], out[n:2*n], out[2*n:]
	for i := range n {
		r[i], g[i], b[i] = packed[3*i], packed[3*i+1], packed[3*i+2]
	}
	return out
}

// furthest is the largest difference of two values at one place.
func furthest(a, b []byte) int {
	if len(a) != len(b) {
		return 256
	}
	most := 0
	for i := range a {
		d := int(a[i]) - int(b[i])
		most = max(most, d, -d)
	}
	return most
}
