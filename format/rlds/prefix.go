package rlds

// prefixCode is a Huffman code of deflate: short codes by a table, long ones bit by bit.
type prefixCode struct {
	counts  [16]int
	symbols [288]uint16
	short   [1 << shortBits]uint16 // symbol<<4 | length; 0: longer than shortBits, or none
}

const shortBits = 10

// make builds the code of some lengths; false where no decoder could tell the codes apart.
func (c *prefixCode) make(lengths []uint8) bool {
	c.counts, c.short = [16]int{}, [1 << shortBits]uint16{}
	for _, n := range lengths {
		c.counts[n]++
	}
	left, codes := 1, 0
	var offsets, next [17]int
	for n := 1; n < 16; n++ {
		left = left<<1 - c.counts[n]
		if left < 0 {
			return false
		}
		codes += c.counts[n]
		offsets[n+1] = offsets[n] + c.counts[n]
		next[n+1] = (next[n] + c.counts[n]) << 1
	}
	c.counts[0] = 0
	if left > 0 && codes > 1 {
		return false // codes that mean nothing; a code of one symbol, or none, is allowed
	}
	for s, n := range lengths {
		if n == 0 {
			continue
		}
		c.symbols[offsets[n]] = uint16(s)
		offsets[n]++
		code := next[n]
		next[n]++
		if n > shortBits {
			continue
		}
		reversed := 0
		for i := range int(n) {
			reversed |= code >> i & 1 << (int(n) - 1 - i)
		}
		for ; reversed < 1<<shortBits; reversed += 1 << n {
			c.short[reversed] = uint16(s)<<4 | uint16(n)
		}
	}
	return true
}

// symbol reads one.
func (z *inflater) symbol(c *prefixCode) (int, error) {
	if z.bits < 15 {
		z.refill()
	}
	if e := c.short[z.acc&(1<<shortBits-1)]; e != 0 && uint(e&15) <= z.bits {
		z.acc, z.bits = z.acc>>(e&15), z.bits-uint(e&15)
		return int(e >> 4), nil
	}
	code, first, index := 0, 0, 0
	for n := 1; n < 16; n++ {
		b, err := z.take(1)
		if err != nil {
			return 0, err
		}
		code |= b
		if k := c.counts[n]; code-k < first {
			return int(c.symbols[index+code-first]), nil
		}
		index += c.counts[n]
		first = (first + c.counts[n]) << 1
		code <<= 1
	}
	return 0, errDeflate
}

var lengthBase = [29]int{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
var lengthMore = [29]uint{8: 1, 9: 1, 10: 1, 11: 1, 12: 2, 13: 2, 14: 2, 15: 2, 16: 3, 17: 3, 18: 3, 19: 3, 20: 4, 21: 4, 22: 4, 23: 4, 24: 5, 25: 5, 26: 5, 27: 5}
var distanceBase = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}

// codes makes bytes of a compressed block until end, which a match may go beyond: its rest is left for the next time.
func (z *inflater) codes(end int64) error {
	for z.out < end {
		if z.left > 0 {
			z.match(end)
			continue
		}
		// Literals, the most of what images are: without a call each.
		for z.out < end {
			if z.bits < 15 {
				z.refill()
			}
			e := z.lit.short[z.acc&(1<<shortBits-1)]
			n := uint(e & 15)
			if e == 0 || e >= 256<<4 || n > z.bits {
				break
			}
			z.acc, z.bits = z.acc>>n, z.bits-n
			z.ring[z.out&(1<<16-1)] = byte(e >> 4)
			z.out++
		}
		if z.out == end {
			return nil
		}
		s, err := z.symbol(&z.lit)
		if err != nil {
			return err
		}
		switch {
		case s < 256:
			z.put(byte(s))
			continue
		case s == 256:
			return z.endBlock()
		case s > 285:
			return errDeflate
		}
		more, err := z.take(lengthMore[s-257])
		if err != nil {
			return err
		}
		n := lengthBase[s-257] + more
		if s, err = z.symbol(&z.far); err != nil {
			return err
		}
		if s > 29 {
			return errDeflate
		}
		extra := uint(0)
		if s > 3 {
			extra = uint(s/2 - 1)
		}
		if more, err = z.take(extra); err != nil {
			return err
		}
		z.left, z.dist = n, distanceBase[s]+more
		if int64(z.dist) > z.out-z.member {
			return errDeflate
		}
	}
	return nil
}

var codeOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamic reads the codes of a block.
func (z *inflater) dynamic() error {
	var n [3]int
	for i, bits := range []uint{5, 5, 4} {
		v, err := z.take(bits)
		if err != nil {
			return err
		}
		n[i] = v + []int{257, 1, 4}[i]
	}
	if n[0] > 286 || n[1] > 30 {
		return errDeflate
	}
	var lengths [320]uint8
	for i := range n[2] {
		v, err := z.take(3)
		if err != nil {
			return err
		}
		lengths[codeOrder[i]] = uint8(v)
	}
	if !z.lit.make(lengths[:19]) {
		return errDeflate
	}
	clear(lengths[:])
	for at := 0; at < n[0]+n[1]; {
		s, err := z.symbol(&z.lit)
		if err != nil {
			return err
		}
		if s < 16 {
			lengths[at] = uint8(s)
			at++
			continue
		}
		v, again := uint8(0), []int{3, 3, 11}[s-16]
		if s == 16 {
			if at == 0 {
				return errDeflate
			}
			v = lengths[at-1]
		}
		more, err := z.take([]uint{2, 3, 7}[s-16])
		if err != nil {
			return err
		}
		if again += more; at+again > n[0]+n[1] {
			return errDeflate
		}
		for ; again > 0; again-- {
			lengths[at] = v
			at++
		}
	}
	if lengths[256] == 0 || !z.lit.make(lengths[:n[0]]) || !z.far.make(lengths[n[0]:n[0]+n[1]]) {
		return errDeflate
	}
	z.state = inCodes
	return nil
}
