package layout

// PaddedRow widens the rows of one key and source to the rows of the mixture's widest source.
type PaddedRow struct {
	Width  int    // numbers of a row of the batch
	Places []int  // positions of the source's numbers in a batch's row
	Mask   []byte // 1 for each padded number of a row
}

// CopyRows copies rows of a source into rows of a batch and sets the other numbers to zero. size is
// the size of a number in bytes.
func (p *PaddedRow) CopyRows(dst, src []byte, size int) {
	clear(dst)
	rowBytes := len(p.Places) * size
	for ; len(src) > 0; src, dst = src[rowBytes:], dst[p.Width*size:] {
		for k, d := range p.Places {
			copy(dst[d*size:(d+1)*size], src[k*size:])
		}
	}
}
