package conform

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/resize"
)

// imageCase is one vector of augmented images. generate_images.py documents the fields.
type imageCase struct {
	Name       string      `json:"name"`
	Seed       uint64      `json:"seed,string"`
	Epoch      uint64      `json:"epoch,string"`
	Sample     int64       `json:"sample,string"`
	Camera     uint32      `json:"camera"`
	Step       int         `json:"step"`
	Size       [2]int      `json:"size"`
	Crop       [2]int      `json:"crop"`
	Pad        int         `json:"pad"`
	Brightness *[2]float64 `json:"brightness"`
	Contrast   *[2]float64 `json:"contrast"`
	Saturation *[2]float64 `json:"saturation"`
	Hue        *[2]float64 `json:"hue"`
	Flip       float64     `json:"flip"`
	Noise      float64     `json:"noise"`
	Scale      []any       `json:"scale"` // filter, height, width
	Rotation   *[2]float64 `json:"rotation"`
	Last       bool        `json:"channels_last"`
	Shared     bool        `json:"shared"`
	Src        string      `json:"src"`
	Want       string      `json:"want"`
	Draw       []uint32    `json:"draw"`
}

// RunImages runs every vector of images on the back end, alone and all in one call, as bytes and as
// floats. It also compares the draws, which only hosts compute.
func RunImages(b kernel.Backend) (ran int, failures []error) {
	cases, err := loadCases[imageCase]("images/images.json")
	if err != nil {
		return 0, []error{err}
	}
	// The float that each byte becomes, for each of three channels. The channels have different
	// values, so that a mix-up of channels is noticed.
	table := make([]float32, 3*256)
	for i := range table {
		channel, value := i/256, i%256
		table[i] = float32(value)/255 - float32(channel)
	}
	var all kernel.ImageOp
	var wants [][]byte
	for i := range cases {
		c := &cases[i]
		part, want, err := c.imagePart()
		if err == nil {
			all.Parts = append(all.Parts, part)
			wants = append(wants, want)
			floats := part
			floats.Table = table
			floats.Out = kernel.Tensor{
				DType: robocache.Float32,
				Shape: part.Out.Shape,
				Data:  bytes.Repeat([]byte{Poison}, 4*len(want)),
			}
			all.Parts = append(all.Parts, floats)
			wants = append(wants, applyTable(want, table, c.Last))
			err = b.Run(&kernel.ImageOp{Parts: []kernel.ImagePart{part}})
		}
		if err == nil && !bytes.Equal(part.Out.Data, want) {
			err = errors.New("other pixels")
		}
		ran++
		if err != nil {
			failures = append(failures, fmt.Errorf("images: %s: %w", c.Name, err))
		}
	}
	if err := b.Run(&all); err != nil {
		return ran, append(failures, fmt.Errorf("images together: %w", err))
	}
	for i := range all.Parts {
		if !bytes.Equal(all.Parts[i].Out.Data, wants[i]) {
			failures = append(
				failures,
				fmt.Errorf("images together: part %d (%s): other pixels", i, cases[i/2].Name),
			)
		}
	}
	return ran, failures
}

// applyTable returns the float32 values that the table gives for bytes [3, h, w], or [h, w, 3].
func applyTable(b []byte, table []float32, channelsLast bool) []byte {
	out := make([]byte, 0, 4*len(b))
	for i, v := range b {
		channel := i / (len(b) / 3)
		if channelsLast {
			channel = i % 3
		}
		out = le.AppendUint32(out, math.Float32bits(table[256*channel+int(v)]))
	}
	return out
}

// imagePart returns the part of the case with a blank result, and the expected bytes. It returns an
// error if the draw differs from that of the case.
func (c *imageCase) imagePart() (p kernel.ImagePart, want []byte, err error) {
	a := kernel.ImageAugment{
		Seed:       c.Seed,
		Epoch:      c.Epoch,
		Camera:     c.Camera,
		Height:     c.Crop[0],
		Width:      c.Crop[1],
		Pad:        c.Pad,
		Brightness: c.Brightness,
		Contrast:   c.Contrast,
		Saturation: c.Saturation,
		Hue:        c.Hue,
		Flip:       c.Flip,
		Noise:      c.Noise,
		Rotation:   c.Rotation,
		Shared:     c.Shared,
	}
	if len(c.Scale) == 3 {
		filter, _ := c.Scale[0].(string)
		height, _ := c.Scale[1].(float64)
		width, _ := c.Scale[2].(float64)
		a.Scale = kernel.ImageScale{
			Filter: resize.Filter(filter), Height: int(height), Width: int(width),
		}
	}
	src, err1 := hex.DecodeString(c.Src)
	want, err2 := hex.DecodeString(c.Want)
	if err := errors.Join(a.Check(c.Size[0], c.Size[1]), err1, err2); err != nil {
		return p, nil, err
	}
	d := a.Draw(c.Sample, c.Size[0], c.Size[1], c.Step)
	words := d.Append(nil)
	for i, w := range c.Draw {
		if got := le.Uint32(words[4*i:]); got != w {
			return p, nil, fmt.Errorf("word %d of the draw is %d, want %d", i, int32(got), int32(w))
		}
	}
	p.Src = kernel.Tensor{
		DType: robocache.Uint8,
		Shape: []int{1, 3, c.Size[0], c.Size[1]},
		Data:  src,
	}
	p.Draws = kernel.Tensor{
		DType: robocache.Int32,
		Shape: []int{1, kernel.ImageDrawWords},
		Data:  words,
	}
	h, w := a.ResultSize(c.Size[0], c.Size[1])
	p.ImageForm = a.Form(c.Size[0], c.Size[1])
	shape := []int{1, 3, h, w}
	if p.ChannelsLast = c.Last; c.Last {
		shape = []int{1, h, w, 3}
	}
	p.Out = kernel.Tensor{
		DType: robocache.Uint8,
		Shape: shape,
		Data:  bytes.Repeat([]byte{Poison}, len(want)),
	}
	return p, want, nil
}
