package plan

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/goatnote-inc/robocache"
)

// identityWait limits the time that a state waits for a store. Without an answer, the state holds
// no hash of values.
const identityWait = 30 * time.Second

// ValuesHash returns a hash of the first, middle and last row of a stream, in the first and the
// last selected episode that have rows. It does not depend on the dataset's location. It returns ""
// if the rows cannot be read.
func (src *Source) ValuesHash(key string) string {
	if got, ok := src.identity.Load(key); ok {
		return got.(string)
	}
	info := src.Dataset.Info()
	f := info.Feature(key)
	if f == nil || f.RowBytes() == 0 {
		return ""
	}
	ctx, stop := context.WithTimeout(context.Background(), identityWait)
	defer stop()
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %v", key, f.DType, f.Shape)
	t := src.Table
	var ends []int // positions of the first and the last episode with samples
	for i := range t.Len() {
		if from, to := t.Span(i); to > from {
			ends = append(ends[:min(len(ends), 1)], t.Episode(i))
		}
	}
	for _, e := range ends {
		n, err := robocache.RowsIn(ctx, src.Dataset, e, f)
		if err != nil {
			return ""
		}
		if n == 0 {
			continue
		}
		rows := []robocache.Row{
			{Episode: e, Index: 0},
			{Episode: e, Index: n / 2},
			{Episode: e, Index: n - 1},
		}
		data := make([]byte, len(rows)*f.RowBytes())
		if err := src.Dataset.Gather(ctx, key, rows, data); err != nil {
			return ""
		}
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(e)))
		h.Write(data)
	}
	sum := hex.EncodeToString(h.Sum(nil)[:12])
	src.identity.Store(key, sum)
	return sum
}
