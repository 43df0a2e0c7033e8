package zarr

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// setFill reads the fill value into one little-endian element; nil stands for zeros.
func (a *Array) setFill(raw json.RawMessage, v3 bool) error {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if len(raw) > 0 {
		if err := d.Decode(&v); err != nil {
			return malformed("fill_value: %v", err)
		}
	}
	bad := func() error {
		return malformed("fill_value %.100s for %s", string(raw), a.Type)
	}
	if v == nil {
		return nil
	}
	if a.Text {
		a.blank, _ = v.(string) // 0 stands for an empty text where objects have no other zero
		return nil
	}
	e := make([]byte, a.Type.Size)
	le := binary.LittleEndian
	switch a.Type.Kind {
	case 'b':
		switch v := v.(type) {
		case bool:
			e[0] = map[bool]byte{true: 1}[v]
		case json.Number:
			e[0] = map[bool]byte{true: 1}[v != "0"]
		default:
			return bad()
		}
	case 'i', 'u':
		n, ok := v.(json.Number)
		if !ok {
			return bad()
		}
		var bits uint64
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			if bits = uint64(i); a.Type.Kind == 'u' && i < 0 || a.Type.Size < 8 && !fits(i, a.Type.Size, a.Type.Kind == 'i') {
				return bad()
			}
		} else if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil && a.Type.Kind == 'u' && a.Type.Size == 8 {
			bits = u
		} else if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 && fits(int64(f), a.Type.Size, a.Type.Kind == 'i') {
			bits = uint64(int64(f)) // 0.0 is written for integers too
		} else {
			return bad()
		}
		var b [8]byte
		le.PutUint64(b[:], bits)
		copy(e, b[:])
	case 'f':
		f, hex, ok := floatFill(v)
		if !ok {
			return bad()
		}
		if hex != nil {
			if len(hex) != len(e) {
				return bad()
			}
			for i := range e {
				e[i] = hex[len(hex)-1-i]
			}
			break
		}
		switch a.Type.Size {
		case 8:
			le.PutUint64(e, math.Float64bits(f))
		case 4:
			le.PutUint32(e, math.Float32bits(float32(f)))
		case 2:
			le.PutUint16(e, robocache.Float32ToHalf(float32(f)))
		}
	case 'S':
		s, ok := v.(string)
		if b, err := base64.StdEncoding.DecodeString(s); ok && err == nil {
			copy(e, b)
		}
	case 'U':
		s, _ := v.(string)
		i := 0
		for _, r := range s {
			if i+4 > len(e) {
				break
			}
			le.PutUint32(e[i:], uint32(r))
			i += 4
		}
	}
	if slices.Max(append(e, 0)) > 0 {
		a.fill = e
	}
	return nil
}

func fits(i int64, size int, signed bool) bool {
	bits := uint(8 * size)
	if signed {
		return bits == 64 || i >= -1<<(bits-1) && i < 1<<(bits-1)
	}
	return i >= 0 && (bits >= 63 || i < 1<<bits)
}

// floatFill reads a number, "NaN", "Infinity", "-Infinity", or v3's "0x…" of the bits.
func floatFill(v any) (f float64, bits []byte, ok bool) {
	switch v := v.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		return f, nil, err == nil || math.IsInf(f, 0)
	case string:
		switch v {
		case "NaN":
			return math.NaN(), nil, true
		case "Infinity":
			return math.Inf(1), nil, true
		case "-Infinity":
			return math.Inf(-1), nil, true
		}
		if s, is := strings.CutPrefix(v, "0x"); is && len(s) <= 16 {
			b, err := hex.DecodeString(s)
			return 0, b, err == nil && len(b) > 0
		}
	}
	return 0, nil, false
}
