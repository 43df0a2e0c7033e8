package frames

const (
	PageSize = 4096
	HugePage = 2 << 20
)

func roundUp(n, to int) int { return (n + to - 1) / to * to }
