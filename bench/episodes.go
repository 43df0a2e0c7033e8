package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// ParseEpisodes reads positions: "0-3,7" is 0, 1, 2, 3, 7. They come out ascending, each once.
func ParseEpisodes(text string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(text, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b-a > 1<<26 {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "episodes", Want: "positions, as 0-9,12", Got: part}
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// FormatEpisodes writes ascending positions so that ParseEpisodes reads them.
func FormatEpisodes(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, list[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", list[j])
		}
		i = j + 1
	}
	return b.String()
}

// ChooseEpisodes takes limit of the positions: a seeded choice, not the first ones, ascending. limit ≤ 0 takes all.
func ChooseEpisodes(list []int, limit int, seed uint64) []int {
	if limit <= 0 || limit >= len(list) {
		return list
	}
	rng := rand.New(rand.NewPCG(seed, 0x6361706564)) // "caped": another stream than the order's
	out := slices.Clone(list)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	out = out[:limit]
	slices.Sort(out)
	return out
}
