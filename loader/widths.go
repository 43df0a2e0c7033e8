package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// dimsSuffix ends the key of the mask that says which numbers of a row are padding.
const dimsSuffix = "_dim_is_pad"

// padded is a numeric key whose rows are widened to those of a mixture's widest source. It is the key's in one source.
type padded struct {
	width int   // of the batch's rows
	dims  []int // where the source's own numbers stand
	mask  []byte
}

// widths finds the keys whose rows sources of a mixture give in different widths, and says where each source's numbers go: its own are
// the leading ones, or stand where Mix.Dims says. Values are normalised before they are widened; what is added is 0.
func widths(sources []*source, mix []Mix, pad bool) error {
	if err := checkDims(sources, mix, pad); err != nil || !pad || len(sources) == 1 {
		return err
	}
	var keys []string
	for _, src := range sources {
		for i := range src.layout.columns {
			if c := &src.layout.columns[i]; c.widens() && !slices.Contains(keys, c.key) {
				keys = append(keys, c.key)
			}
		}
	}
	for _, key := range keys {
		width, least, chosen := 0, int(^uint(0)>>1), false
		for i, src := range sources {
			c := src.layout.column(key)
			if c == nil {
				continue
			}
			if !c.widens() {
				width = 0
				break // other forms: newForm says so
			}
			width, least = max(width, c.elems), min(least, c.elems)
			if dims, ok := mix[i].Dims[key]; ok {
				chosen = true
				width = max(width, slices.Max(dims)+1)
			}
		}
		if width == 0 || width == least && !chosen {
			continue
		}
		for i, src := range sources {
			c := src.layout.column(key)
			if c == nil {
				continue
			}
			p := &padded{width: width, dims: mix[i].Dims[key], mask: make([]byte, width)}
			for k := range p.mask {
				p.mask[k] = 1
			}
			if p.dims == nil {
				for k := range c.elems {
					p.dims = append(p.dims, k)
				}
			}
			for _, k := range p.dims {
				p.mask[k] = 0
			}
			src.pads[key] = p
		}
	}
	return nil
}

// widens says whether a column's rows are a list of numbers that may be widened.
func (c *column) widens() bool {
	return c.source == fromTable && !c.ragged && !c.when && c.feature != nil && len(c.feature.Shape) <= 1 && c.elems > 0
}

// maxWidth bounds what dims may ask for.
const maxWidth = 1 << 16

func checkDims(sources []*source, mix []Mix, pad bool) error {
	for i, src := range sources {
		for _, key := range options.Keys(mix[i].Dims) {
			dims := mix[i].Dims[key]
			bad := func(msg, want, got, hint string) error {
				return &robocache.Error{Class: robocache.ErrMisuse, Op: "mixture", Where: robocache.Where{"stream": key, "dataset": mix[i].Name}, Msg: "dims: " + msg, Want: want, Got: got, Hint: hint}
			}
			c := src.layout.column(key)
			switch {
			case len(sources) == 1:
				return bad("there is one source: nothing is padded", "", "", "give the loader several sources")
			case !pad:
				return bad("rows are padded where that is asked for", "", "", `missing="pad"`)
			case c == nil:
				return bad("the source gives no such key", "", "", nearest(key, src.layout.keys()))
			case !c.widens():
				return bad("its rows are no list of numbers", "a numeric stream of one dimension", fmt.Sprint(c.feature.Shape), "")
			case len(dims) != c.elems:
				return bad("a place for each number of a row", fmt.Sprintf("%d places", c.elems), fmt.Sprint(len(dims)), "")
			}
			seen := map[int]bool{}
			for _, d := range dims {
				if d < 0 || d >= maxWidth || seen[d] {
					return bad("places of the padded row", fmt.Sprintf("each once, 0 to %d", maxWidth-1), fmt.Sprint(dims), "")
				}
				seen[d] = true
			}
		}
	}
	return nil
}

// widen is a field as wide as its padded rows.
func (src *source) widen(x Field) Field {
	p := src.pads[x.Key]
	if p == nil {
		return x
	}
	x.Shape = slices.Clone(x.Shape)
	if src.layout.column(x.Key).feature.Scalar() {
		x.Shape = append(x.Shape, 0)
	}
	x.Shape[len(x.Shape)-1] = p.width
	return x
}

// place writes rows of a source into the padded rows of a batch.
func (p *padded) place(dst, src []byte, size int) {
	clear(dst)
	own := len(p.dims) * size
	for ; len(src) > 0; src, dst = src[own:], dst[p.width*size:] {
		for k, d := range p.dims {
			copy(dst[d*size:(d+1)*size], src[k*size:])
		}
	}
}

// dimMasks makes the masks of what is padded.
func dimMasks(fields []Field, sources []*source) ([]Field, error) {
	var out []Field
	for i := range fields {
		key := fields[i].Key
		for _, src := range sources {
			p := src.pads[key]
			if p == nil {
				continue
			}
			if slices.ContainsFunc(fields, func(x Field) bool { return x.Key == key+dimsSuffix }) {
				return nil, mixError(src, key+dimsSuffix, "a key that the mixture adds itself", `rename={"`+key+dimsSuffix+`": …}`)
			}
			out = append(out, Field{Key: key + dimsSuffix, DType: robocache.Bool, Shape: []int{p.width}, Kind: robocache.KindNumeric, Mask: true})
			break
		}
	}
	return out, nil
}

// dimMask is a source's row of such a mask: all padding where it has no such key. ok says whether the tensor is one.
func (src *source) dimMask(t *tensorPlan) (row []byte, ok bool) {
	key, is := strings.CutSuffix(t.key, dimsSuffix)
	if !is || !src.a.form.masks(t.key) {
		return nil, false
	}
	if p := src.pads[key]; p != nil {
		return p.mask, true
	}
	return slices.Repeat([]byte{1}, t.bytes), true
}
