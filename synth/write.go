package synth

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Write writes a new dataset at dst, in Options.Format.
func Write(ctx context.Context, dst string, opt Options) (*Report, error) {
	if opt.Format == "" {
		opt.Format = robocache.DefaultFormat()
	}
	f, err := robocache.FormatNamed(opt.Format)
	if err != nil {
		return nil, err
	}
	if f.Write == nil {
		return nil, robocache.Unsupported(
			"synth",
			nil,
			"the format %s is read, not written",
			opt.Format,
		)
	}
	ds, options, err := For(opt, f, false)
	if err == nil && !f.KeepsClocks(options) {
		err = opt.checkFitsRows()
	}
	if err != nil {
		return nil, err
	}
	r, err := f.Write(
		ctx,
		ds,
		dst,
		robocache.WriteOptions{Options: options, Progress: opt.Progress},
	)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": dst})
	}
	if r.Own == nil {
		r.Findings = append(robocache.Findings(ds), r.Findings...)
	}
	return ds.Report(dst, r), nil
}

// For returns the dataset to write in a format, and the options of its writer. A format with one
// clock gets samples in rows, unless grid is set or rows cannot hold them.
func For(opt Options, f robocache.Format, grid bool) (*Dataset, map[string]string, error) {
	options := map[string]string{}
	if _, ok := f.WriteOptions["recorded_timestamps"]; ok && !grid && !opt.needsClocks() {
		options["recorded_timestamps"] = "false" // rows store the timestamps in separate columns
	}
	if _, ok := f.WriteOptions["video_codec"]; ok {
		switch opt.Codec {
		case "av1", "h264", "hevc":
			options["codec"] = opt.Codec
			fallthrough
		case "":
			opt.Codec = "raw" // images are generated as pixels, and the writer encodes them
			options["gop"] = strconv.Itoa(opt.GOP)
		case "png", "jpeg":
			options["images"] = "images"
		}
	}
	if _, ok := f.WriteOptions["timestamps"]; ok && !grid && opt.Preset != "" {
		options["timestamps"] = "true"
	}
	world := NewRows
	if grid || f.Clocks || opt.needsClocks() {
		world = New
	}
	ds, err := world(opt)
	return ds, options, err
}

// needsClocks reports whether the options need more than rows with one clock can hold.
func (o *Options) needsClocks() bool { return o.checkFitsRows() != nil }

// Report returns a summary of the written dataset.
func (d *Dataset) Report(dst string, r *robocache.WriteReport) *Report {
	return &Report{
		URI:      dst,
		Episodes: r.Episodes,
		Frames:   r.Frames,
		Bytes:    r.Bytes,
		FPS:      d.fps.Float(),
		Keys:     d.info.Keys(),
		Tasks:    d.options.Tasks,
		Seed:     d.options.Seed,
		Dropped:  r.Dropped,
		Findings: r.Findings,
	}
}

// checkCodeFits rejects images that are too small for their bar code.
func (o *Options) checkCodeFits() error {
	if side, columns, rows := codeLayout(o.Width, o.Height); rows*side*2 > o.Height || columns < 1 {
		return misuseError(
			"the images have no room for their bar code",
			"a wider or higher image",
			strconv.Itoa(o.Width)+" x "+strconv.Itoa(o.Height),
		)
	}
	return nil
}

// encodePNG returns an RGB image as PNG.
func encodePNG(rgb []byte, width, height int) ([]byte, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, nrgba(rgb, width, height)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func nrgba(rgb []byte, width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i, j := 0, 0; i < len(rgb); i, j = i+3, j+4 {
		m.Pix[j], m.Pix[j+1], m.Pix[j+2], m.Pix[j+3] = rgb[i], rgb[i+1], rgb[i+2], 255
	}
	return m
}
