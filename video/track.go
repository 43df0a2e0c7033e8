package video

import "cmp"

// track holds the relevant boxes of one trak, by kind. Of repeated boxes the first one counts.
type track struct {
	box
	handler   string
	timescale int64
	matrix    [4]int64 // a, b, c and d of tkhd, in 16.16 fixed point
	boxes     map[string]box
}

// upright is the display matrix without rotation.
var upright = [4]int64{1 << 16, 0, 0, 1 << 16}

// parseMoov finds the first video track and builds its index.
func parseMoov(moov box, fileSize int64, lim Limits) (*Index, error) {
	p := &boxParser{lim: lim, fileSize: fileSize}
	var movieScale int64
	movie := upright
	var video *track
	if err := p.eachChild("moov", moov.data, moov.off+8, func(b box) error {
		switch b.kind {
		case "mvhd":
			version, d, err := p.splitFullBox(b, 96)
			if err != nil {
				return err
			}
			// after times 4 + 4, scale 4, duration 4, rate 4, volume 2, reserved 10
			scaleAt, matrixStart := 8, 32
			if version == 1 { // times and duration of 8 bytes
				scaleAt, matrixStart = 16, 44
			}
			movieScale = int64(be.Uint32(d[scaleAt:]))
			movie = matrixAt(d[matrixStart:])
		case "mvex":
			// The tables cover at most the first fragment, so an index would lack the other frames.
			return b.unsupported(remuxHint, "fragmented mp4: samples are listed in moof boxes")
		case "trak":
			if video == nil {
				if t, err := p.parseTrak(b); err != nil {
					return err
				} else if t.handler == "vide" {
					video = t
				}
			}
		case "cmov":
			return b.unsupported(remuxHint, "compressed movie header")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if video == nil {
		return nil, moov.malformed("no video track")
	}
	ix, err := video.buildIndex(p, movieScale)
	if err != nil {
		return nil, err
	}
	rotation, ok := rotationOf(video.matrix, movie)
	if !ok {
		header := box{kind: "tkhd", off: video.off}
		return nil, header.unsupported(
			"re-encode it upright",
			"the display matrix %v is not a rotation by a multiple of 90 degrees",
			video.matrix,
		)
	}
	for i := range ix.entries {
		ix.entries[i].Rotation = rotation
	}
	return ix, nil
}

// matrixAt reads the rotation and scale (a, b, c, d) of a display matrix (a, b, u, c, d, …). data
// must have at least 20 bytes.
func matrixAt(data []byte) [4]int64 {
	element := func(i int) int64 { return int64(int32(be.Uint32(data[4*i:]))) }
	return [4]int64{element(0), element(1), element(3), element(4)}
}

// turns maps the signs of a display matrix to degrees clockwise.
var turns = map[[4]int]int{
	{1, 0, 0, 1}:   0,
	{0, 1, -1, 0}:  90,
	{-1, 0, 0, -1}: 180,
	{0, -1, 1, 0}:  270,
}

// rotationOf returns the rotation of the track and movie matrix together, clockwise. ok is false if
// it is not a multiple of 90 degrees. Scaling is ignored, because it concerns only the display.
func rotationOf(track, movie [4]int64) (degrees int, ok bool) {
	signs := func(m [4]int64) (s [4]int) {
		if m == [4]int64{} {
			m = upright
		}
		for i, x := range m {
			s[i] = cmp.Compare(x, 0)
		}
		return s
	}
	t, m := signs(track), signs(movie)
	product := [4]int{
		t[0]*m[0] + t[1]*m[2],
		t[0]*m[1] + t[1]*m[3],
		t[2]*m[0] + t[3]*m[2],
		t[2]*m[1] + t[3]*m[3],
	}
	degrees, ok = turns[product]
	return degrees, ok
}

// parseTrak collects the boxes of a track.
func (p *boxParser) parseTrak(trak box) (*track, error) {
	t := &track{box: trak, matrix: upright, boxes: map[string]box{}}
	var visit func(b box) error
	visit = func(b box) error {
		switch b.kind {
		case "mdia", "minf", "stbl", "edts":
			if err := p.eachChild(b.kind, b.data, b.off+8, visit); err != nil {
				return err
			}
		case "tkhd":
			version, d, err := p.splitFullBox(b, 80) // times of 32 bits
			if err != nil {
				return err
			}
			// after times 8, id 4, reserved 4, duration 4, reserved 8, layer, group, volume,
			// reserved 2 each
			at := 36
			if version == 1 { // three of the four times have 64 bits
				at = 48
				if _, d, err = p.splitFullBox(b, 84); err != nil {
					return err
				}
			}
			t.matrix = matrixAt(d[at:])
		case "mdhd":
			version, d, err := p.splitFullBox(b, 20)
			if err != nil {
				return err
			}
			at := 8 // after two times of 32 bits
			if version == 1 {
				at = 16 // after two times of 64 bits
			}
			t.timescale = int64(be.Uint32(d[at:]))
		case "hdlr":
			_, d, err := p.splitFullBox(b, 8)
			if err != nil {
				return err
			}
			if t.handler == "" { // QuickTime has a second hdlr in minf, for the data handler
				t.handler = string(d[4:8])
			}
		case "elst", "stsd", "stsz", "stz2", "stsc", "stco", "co64", "stts", "ctts", "stss":
			if !t.boxes[b.kind].isPresent() {
				t.boxes[b.kind] = b
			}
		}
		return nil
	}
	if err := p.eachChild("trak", trak.data, trak.off+8, visit); err != nil {
		return nil, err
	}
	return t, nil
}
