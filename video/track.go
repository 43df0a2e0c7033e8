package video

// track holds the boxes of one trak that matter here.
type track struct {
	off       int64
	handler   string
	timescale int64
	matrix    [4]int64 // a, b, c, d of tkhd, 16.16
	elst      box
	stsd, stsz, stz2, stsc, stco, co64, stts, ctts,
	stss box
}

// parseMoov finds the first video track and builds its index.
func parseMoov(moov box, fileSize int64, lim Limits) (*Index, error) {
	var movieScale int64
	movie := [4]int64{1 << 16, 0, 0, 1 << 16}
	var video *track
	err := children("moov", moov.data, moov.off+8, func(b box) error {
		switch b.kind {
		case "mvhd":
			version, _, d, err := b.full(96)
			if err != nil {
				return err
			}
			at, matrix := 8, 32 // times 4 + 4, scale 4, duration 4, rate 4, volume 2, reserved 10
			if version == 1 {
				at, matrix = 16, 44
			}
			movieScale = int64(be.Uint32(d[at:]))
			movie = matrixAt(d[matrix:], movie)
		case "mvex":
			// The tables hold the first fragment or nothing: reading them alone would be a shorter list.
			return unsupported(b.kind, b.off, remuxHint, "fragmented mp4: samples are listed in moof boxes")
		case "trak":
			if video != nil {
				return nil
			}
			t, err := parseTrak(b)
			if err != nil {
				return err
			}
			if t.handler == "vide" {
				video = t
			}
		case "cmov":
			return unsupported(b.kind, b.off, remuxHint, "compressed movie header")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if video == nil {
		return nil, malformed(moov.kind, moov.off, "no video track")
	}
	ix, err := video.build(movieScale, fileSize, lim)
	if err != nil {
		return nil, err
	}
	rotation, ok := rotationOf(video.matrix, movie)
	if !ok {
		return nil, unsupported("tkhd", video.off, "re-encode it upright", "the display matrix %v is no rotation by quarter turns", video.matrix)
	}
	for i := range ix.entries {
		ix.entries[i].Rotation = rotation
	}
	return ix, nil
}

func matrixAt(d []byte, fallback [4]int64) [4]int64 {
	if len(d) < 20 {
		return fallback
	}
	i32 := func(i int) int64 { return int64(int32(be.Uint32(d[4*i:]))) }
	return [4]int64{i32(0), i32(1), i32(3), i32(4)}
}

// rotationOf gives the quarter turns, clockwise, that track and movie matrix together ask for. Scaling is the display's business.
func rotationOf(track, movie [4]int64) (degrees int, ok bool) {
	sign := func(x int64) int64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}
	var t, m [4]int64
	for i := range t {
		t[i], m[i] = sign(track[i]), sign(movie[i])
	}
	zero := [4]int64{}
	if t == zero {
		t = [4]int64{1, 0, 0, 1}
	}
	if m == zero {
		m = [4]int64{1, 0, 0, 1}
	}
	r := [4]int64{t[0]*m[0] + t[1]*m[2], t[0]*m[1] + t[1]*m[3], t[2]*m[0] + t[3]*m[2], t[2]*m[1] + t[3]*m[3]}
	switch r {
	case [4]int64{1, 0, 0, 1}:
		return 0, true
	case [4]int64{0, 1, -1, 0}:
		return 90, true
	case [4]int64{-1, 0, 0, -1}:
		return 180, true
	case [4]int64{0, -1, 1, 0}:
		return 270, true
	}
	return 0, false
}

// parseTrak gathers the boxes of a track. Of repeated boxes the first counts.
func parseTrak(trak box) (*track, error) {
	t := &track{off: trak.off, matrix: [4]int64{1 << 16, 0, 0, 1 << 16}}
	keep := func(dst *box, b box) {
		if !dst.present() {
			*dst = b
		}
	}
	var visit func(b box) error
	visit = func(b box) error {
		switch b.kind {
		case "mdia", "minf", "stbl", "edts":
			return children(b.kind, b.data, b.off+8, visit)
		case "tkhd":
			version, _, d, err := b.full(80)
			if err != nil {
				return err
			}
			at := 36 // times 8, id 4, reserved 4, duration 4, reserved 8, layer, group, volume, reserved 2 each
			if version == 1 {
				at = 48
			}
			if len(d) < at+36 {
				return malformed(b.kind, b.off, "%d bytes: too short", len(b.data))
			}
			t.matrix = matrixAt(d[at:], t.matrix)
		case "mdhd":
			version, _, d, err := b.full(20)
			if err != nil {
				return err
			}
			at := 8
			if version == 1 {
				at = 16
			}
			t.timescale = int64(be.Uint32(d[at:]))
		case "hdlr":
			_, _, d, err := b.full(8)
			if err != nil {
				return err
			}
			if t.handler == "" { // QuickTime has a second one, in minf, for the data handler
				t.handler = string(d[4:8])
			}
		case "elst":
			keep(&t.elst, b)
		case "stsd":
			keep(&t.stsd, b)
		case "stsz":
			keep(&t.stsz, b)
		case "stz2":
			keep(&t.stz2, b)
		case "stsc":
			keep(&t.stsc, b)
		case "stco":
			keep(&t.stco, b)
		case "co64":
			keep(&t.co64, b)
		case "stts":
			keep(&t.stts, b)
		case "ctts":
			keep(&t.ctts, b)
		case "stss":
			keep(&t.stss, b)
		}
		return nil
	}
	return t, children("trak", trak.data, trak.off+8, visit)
}
