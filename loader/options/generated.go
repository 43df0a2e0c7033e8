package options

// EpisodeID is a key that is available for any dataset: the index of the sample's episode, as text.
const EpisodeID = "episode_id"
