package rlds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/adler32"
	"hash/crc32"
	"io"
)

// inflater reads a gzip or zlib file as other decompressors do, and notes places at which another can begin in its middle (marks): the start of
// a block, with the 32 KiB before it. Libraries give their bytes and keep such places to themselves. It is for the one pass that indexes a shard.
type inflater struct {
	in      io.Reader
	buf     []byte
	pos     int   // in buf
	read    int64 // bytes taken from in into acc
	ended   error // of in
	acc     uint64
	bits    uint          // of acc that count; above them it holds what the next ones are, or 0
	ring    [1 << 16]byte // what was made: the newest half is what a distance may reach
	out, at int64         // bytes made and given
	member  int64         // out where the member begins
	zlib    bool
	sum     interface {
		io.Writer
		Sum32() uint32
	}
	state  blockState
	last   bool
	left   int // of a stored block, or of a match
	dist   int
	lit    prefixCode
	far    prefixCode // of distances
	err    error
	marks  *marks // nil: none are noted
	summed int64
}

type blockState uint8

const (
	atMember blockState = iota
	atBlock
	inStored
	inCodes
)

const deflateReach = 32 << 10

var errDeflate = errors.New("a damaged deflate stream")

func newInflater(r io.Reader, p packing, m *marks) *inflater {
	return &inflater{in: r, zlib: p == zlibStream, marks: m}
}

func (z *inflater) Read(p []byte) (int, error) {
	for z.at == z.out {
		if z.err != nil {
			return 0, z.err
		}
		z.err = z.fill()
		z.check()
	}
	from := int(z.at & (1<<16 - 1))
	n := copy(p, z.ring[from:min(1<<16, from+int(z.out-z.at))])
	z.at += int64(n)
	return n, nil
}

// check brings the check sum to what was made.
func (z *inflater) check() {
	for z.sum != nil && z.summed < z.out {
		from := int(z.summed & (1<<16 - 1))
		b := z.ring[from:min(1<<16, from+int(z.out-z.summed))]
		_, _ = z.sum.Write(b)
		z.summed += int64(len(b))
	}
}

// resume begins at a mark; in must stand at its byte.
func (z *inflater) resume(k *mark) error {
	if k.head {
		z.read = k.bit / 8
		return nil
	}
	z.state, z.member = atBlock, -int64(len(k.window))
	copy(z.ring[len(z.ring)-len(k.window):], k.window)
	_, err := z.take(uint(k.bit % 8))
	return err
}

// refill brings acc to 56 bits or more, as far as there are so many.
func (z *inflater) refill() {
	if len(z.buf)-z.pos >= 8 {
		z.acc |= binary.LittleEndian.Uint64(z.buf[z.pos:]) << z.bits
		n := (63 - z.bits) >> 3
		z.pos, z.read, z.bits = z.pos+int(n), z.read+int64(n), z.bits|56
		return
	}
	z.acc &= 1<<z.bits - 1
	for z.bits <= 56 {
		if z.pos == len(z.buf) && !z.more() {
			return
		}
		z.acc |= uint64(z.buf[z.pos]) << z.bits
		z.pos, z.read, z.bits = z.pos+1, z.read+1, z.bits+8
	}
}

const inflateBuffer = 128 << 10

func (z *inflater) more() bool {
	if z.ended != nil {
		return false
	}
	if z.buf == nil {
		z.buf = make([]byte, inflateBuffer)
	}
	var n int
	for n == 0 && z.ended == nil {
		n, z.ended = z.in.Read(z.buf[:cap(z.buf)])
	}
	z.buf, z.pos = z.buf[:n], 0
	return n > 0
}

func (z *inflater) byte() (byte, error) {
	v, err := z.take(8)
	return byte(v), err
}

// take reads n bits, at most 32.
func (z *inflater) take(n uint) (int, error) {
	if z.bits < n {
		if z.refill(); z.bits < n {
			if z.ended != nil && z.ended != io.EOF {
				return 0, z.ended
			}
			return 0, io.ErrUnexpectedEOF
		}
	}
	v := int(z.acc & (1<<n - 1))
	z.acc, z.bits = z.acc>>n, z.bits-n
	return v, nil
}

func (z *inflater) put(b byte) {
	z.ring[z.out&(1<<16-1)] = b
	z.out++
}

// fill makes at most 32 KiB more: together with what a distance may reach that is the ring.
func (z *inflater) fill() error {
	for end := z.out + deflateReach; z.out < end; {
		var err error
		switch z.state {
		case atMember:
			err = z.head()
		case atBlock:
			err = z.block()
		case inStored:
			err = z.stored(end)
		case inCodes:
			err = z.codes(end)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// head reads what stands before a member's blocks; io.EOF where there is no further member.
func (z *inflater) head() error {
	if z.refill(); z.bits < 8 && z.read > 0 && (z.ended == nil || z.ended == io.EOF) {
		return io.EOF
	}
	at := z.read - int64(z.bits/8)
	first, err := z.byte()
	if err != nil {
		return err
	}
	z.marks.member(at, z.out)
	z.state, z.member, z.summed = atBlock, z.out, z.out
	if z.zlib {
		_, err = z.byte()
		z.sum = adler32.New()
		return err
	}
	var h [9]byte
	for i := range h {
		if h[i], err = z.byte(); err != nil {
			return err
		}
	}
	if first != 0x1f || h[0] != 0x8b || h[1] != 8 || h[2]&0xe0 != 0 {
		return errDeflate
	}
	skip := 0
	if h[2]&4 != 0 {
		lo, _ := z.byte()
		hi, err := z.byte()
		if err != nil {
			return err
		}
		skip = int(lo) | int(hi)<<8
	}
	for ; skip > 0; skip-- {
		if _, err := z.byte(); err != nil {
			return err
		}
	}
	for _, flag := range []byte{8, 16} { // name and comment end with a zero
		for b := byte(1); h[2]&flag != 0 && b != 0; {
			if b, err = z.byte(); err != nil {
				return err
			}
		}
	}
	if h[2]&2 != 0 {
		_, _ = z.byte()
		if _, err := z.byte(); err != nil {
			return err
		}
	}
	z.sum = crc32.NewIEEE()
	return nil
}

func (z *inflater) block() error {
	if z.marks.wants(z.out) {
		z.marks.block(z.read*8-int64(z.bits), z.out, z.tail(int(min(z.out-z.member, deflateReach))))
	}
	v, err := z.take(3)
	if err != nil {
		return err
	}
	z.last = v&1 != 0
	switch v >> 1 {
	case 0:
		if _, err := z.take(z.bits & 7); err != nil {
			return err
		}
		n, err := z.take(16)
		if err != nil {
			return err
		}
		m, err := z.take(16)
		if err != nil {
			return err
		}
		if n^m != 0xffff {
			return errDeflate
		}
		z.left, z.state = n, inStored
		if n == 0 {
			return z.endBlock()
		}
		return nil
	case 1:
		var l [288]uint8
		for i := range l {
			switch {
			case i < 144 || i >= 280:
				l[i] = 8
			case i < 256:
				l[i] = 9
			default:
				l[i] = 7
			}
		}
		z.lit.make(l[:])
		z.far.make(bytes.Repeat([]byte{5}, 32))
		z.state = inCodes
		return nil
	case 2:
		return z.dynamic()
	}
	return errDeflate
}

// stored copies bytes of a stored block: those that were taken ahead, then the others at once.
func (z *inflater) stored(end int64) error {
	for ; z.left > 0 && z.out < end && z.bits > 0; z.left-- {
		b, err := z.byte()
		if err != nil {
			return err
		}
		z.put(b)
	}
	for z.left > 0 && z.out < end {
		z.acc = 0
		if z.pos == len(z.buf) && !z.more() {
			_, err := z.take(8)
			return err
		}
		to := int(z.out & (1<<16 - 1))
		n := copy(z.ring[to:min(len(z.ring), to+min(z.left, int(end-z.out)))], z.buf[z.pos:])
		z.pos, z.read, z.out, z.left = z.pos+n, z.read+int64(n), z.out+int64(n), z.left-n
	}
	if z.left > 0 {
		return nil
	}
	return z.endBlock()
}

// match copies what a match repeats, until end.
func (z *inflater) match(end int64) {
	for z.left > 0 && z.out < end {
		from, to := int((z.out-int64(z.dist))&(1<<16-1)), int(z.out&(1<<16-1))
		n := copy(z.ring[to:min(len(z.ring), to+min(z.left, int(end-z.out), z.dist))], z.ring[from:])
		z.out, z.left = z.out+int64(n), z.left-n
	}
}

// tail copies the last n bytes that were made.
func (z *inflater) tail(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = z.ring[(z.out-int64(n)+int64(i))&(1<<16-1)]
	}
	return b
}

func (z *inflater) endBlock() error {
	if !z.last {
		z.state = atBlock
		return nil
	}
	if _, err := z.take(z.bits & 7); err != nil {
		return err
	}
	var b [8]byte
	n := 8
	if z.zlib {
		n = 4
	}
	for i := range n {
		v, err := z.take(8)
		if err != nil {
			return err
		}
		b[i] = byte(v)
	}
	z.check()
	if z.sum == nil { // from a mark: of some of the member there is no sum
		z.state = atMember
		if z.zlib {
			return io.EOF
		}
		return nil
	}
	if z.zlib {
		if binary.BigEndian.Uint32(b[:]) != z.sum.Sum32() {
			return errDeflate
		}
		return io.EOF
	}
	if binary.LittleEndian.Uint32(b[:]) != z.sum.Sum32() || binary.LittleEndian.Uint32(b[4:]) != uint32(z.out-z.member) {
		return errDeflate
	}
	z.state = atMember
	return nil
}
