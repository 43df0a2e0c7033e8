package layout

// PaddedRow is a numeric key whose rows are widened to those of a mixture's widest source. It is the key's in one source.
type PaddedRow struct {
	Width  int   // of the batch's rows
	Places []int // where the source's own numbers stand
	Mask   []byte
}

// CopyRows writes rows of a source into the padded rows of a batch.
func (p *PaddedRow) CopyRows(dst, src []byte, size int) {
	clear(dst)
	own := len(p.Places) * size
	for ; len(src) > 0; src, dst = src[own:], dst[p.Width*size:] {
		for k, d := range p.Places {
			copy(dst[d*size:(d+1)*size], src[k*size:])
		}
	}
}
