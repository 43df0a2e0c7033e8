package zarr

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// setFill reads the fill value into one little-endian element; nil stands for zeros.
func (a *Array) setFill(raw json.RawMessage) {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if len(raw) > 0 {
		if err := d.Decode(&v); err != nil {
			bad("fill_value: %v", err)
		}
	}
	if v == nil {
		return
	}
	if a.Text {
		a.blank, _ = v.(string) // 0 stands for an empty text where objects have no other zero
		return
	}
	e := make([]byte, a.Type.Size)
	text, _ := v.(string)
	n, number := v.(json.Number)
	ok := true
	switch a.Type.Kind {
	case 'b':
		b, is := v.(bool)
		if ok = is || number; b || number && n != "0" {
			e[0] = 1
		}
	case 'i', 'u':
		var bits uint64
		bits, ok = integerFill(n.String(), a.Type.Size, a.Type.Kind == 'i')
		copy(e, le.AppendUint64(nil, bits))
	case 'f':
		if s, is := strings.CutPrefix(text, "0x"); is && len(s) <= 16 { // v3's, of the bits
			b, err := hex.DecodeString(s)
			if ok = err == nil && len(b) == len(e); ok {
				slices.Reverse(b)
				copy(e, b)
			}
			break
		}
		f, err := strconv.ParseFloat(n.String(), 64)
		if named, is := map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[text]; is {
			f, err = named, nil
		}
		ok = err == nil || math.IsInf(f, 0)
		putFloat(e, f)
	case 'S':
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			copy(e, b)
		}
	case 'U':
		i := 0
		for _, r := range text {
			if i+4 > len(e) {
				break
			}
			le.PutUint32(e[i:], uint32(r))
			i += 4
		}
	}
	if !ok {
		bad("fill_value %.100s for %s", string(raw), a.Type)
	}
	if slices.Max(append(e, 0)) > 0 {
		a.fill = e
	}
}

// putFloat puts a number into a little-endian element, of the size of dst.
func putFloat(dst []byte, f float64) {
	switch len(dst) {
	case 8:
		le.PutUint64(dst, math.Float64bits(f))
	case 4:
		le.PutUint32(dst, math.Float32bits(float32(f)))
	case 2:
		le.PutUint16(dst, robocache.HalfOf(f))
	}
}

// integerFill reads a number that an integer of so many bytes holds; 0.0 is written for integers too.
func integerFill(s string, size int, signed bool) (uint64, bool) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return uint64(i), fits(i, size, signed)
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil && !signed && size == 8 {
		return u, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return uint64(int64(f)), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 && fits(int64(f), size, signed)
}

func fits(i int64, size int, signed bool) bool {
	bits := uint(8 * size)
	if signed {
		return bits == 64 || i >= -1<<(bits-1) && i < 1<<(bits-1)
	}
	return i >= 0 && (bits >= 63 || i < 1<<bits)
}
