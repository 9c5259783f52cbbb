/* The loops of the search, in plain C, called through ctypes by the modules that the sections name.

   merge         merges the cheapest pair of fragments until one is left, from a dense matrix
   merge_linked  merges the cheapest pair that shares an edge, from a sparse graph
   improve       moves fragments between clusters in passes that also go uphill
   partition_cuts
                 sums the weights of the edges that leave each cluster
   sweep         moves node after node to the best cluster nearby, with prices and limits
   propagate     groups rows by the labels of their neighbors
   contract      sums the edges between groups

   Arrays are C-contiguous, of int64 and float64; the columns of a graph are int32. A function
   returns -1 if it cannot allocate its scratch memory, and otherwise a count, or 0.

   tests/search/numpy_search.py has the same functions in NumPy, which the tests compare bit by bit.
   So the order of additions matters here, and the compiler must not fuse a multiplication with one. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef int64_t i64;

/* Raise this number when the arguments of a function change: kernels.py checks it. */
EXPORT i64 interface(void)
{
    return 4;
}

/* prcut.numerics.objective.ClusterCost; the table holds the balance term of every size up to n, and
   is NULL where that would take too much memory */
typedef struct {
    double n_samples, scale, factor;
    const double *table;
} Cost;

static inline double cost_of(const Cost *cost, double cut, double size)
{
    double balance;
    if (cost->table) {
        balance = cost->table[(i64)size];
    } else {
        double fraction = size / cost->n_samples;
        balance = cost->factor * fraction * log(fraction);
    }
    return cost->scale * cut / size + balance;
}

/* a symmetric graph in compressed rows, with an empty diagonal unless a comment says otherwise.
   A graph of all rows of a large run has its weights in single precision, the other is NULL */
typedef struct {
    i64 n;
    const i64 *indptr;
    const int32_t *indices;
    const double *weight;
    const float *single;
} Graph;

static inline double weight_of(const Graph *graph, i64 e)
{
    return graph->single ? (double)graph->single[e] : graph->weight[e];
}

/* ---- merge.py: greedy merging of fragments ----------------------------------------------------- */

/* merges the pair whose merge raises the objective least, n - 1 times. Writes the two nodes of every
   merge (fragments are 0 to n - 1, merge i makes node n + i) and its cost; links (n, n) and sizes are
   scratch afterwards. The cheapest partner of every fragment is kept, so a merge takes O(n) steps
   unless many fragments lose their partner by it */

EXPORT i64 merge(i64 n, double *links, double *sizes, const Cost *cost, i64 *children, double *costs)
{
    double *added = malloc((size_t)(n * n) * sizeof *added);
    double *scratch = malloc((size_t)(4 * n) * sizeof *scratch);
    i64 *numbers = malloc((size_t)(3 * n) * sizeof *numbers);
    if (!added || !scratch || !numbers) {
        free(added), free(scratch), free(numbers);
        return -1;
    }
    double *cuts = scratch, *own = scratch + n, *least = scratch + 2 * n, *joined = scratch + 3 * n;
    i64 *partner = numbers, *node = numbers + n, *alive = numbers + 2 * n, n_alive = n;

    for (i64 i = 0; i < n; i++) {
        double cut = 0;
        for (i64 j = 0; j < n; j++)
            cut += links[i * n + j];
        cuts[i] = cut;
        own[i] = cost_of(cost, cut, sizes[i]);
        node[i] = alive[i] = i;
    }
    for (i64 i = 0; i < n; i++) {
        least[i] = INFINITY, partner[i] = 0;
        for (i64 j = 0; j < n; j++) {
            double *price = added + i * n + j;
            if (j < i)
                *price = added[j * n + i];
            else if (j == i)
                *price = INFINITY;
            else
                *price = cost_of(cost, cuts[i] + cuts[j] - 2 * links[i * n + j],
                                 sizes[i] + sizes[j]) - own[i] - own[j];
            if (*price < least[i])
                least[i] = *price, partner[i] = j;
        }
    }
    for (i64 number = 0; number < n - 1; number++) {
        i64 kept = alive[0];
        for (i64 a = 1; a < n_alive; a++)
            if (least[alive[a]] < least[kept])
                kept = alive[a];
        i64 gone = partner[kept];
        i64 lower = node[kept] < node[gone] ? kept : gone;
        children[2 * number] = node[lower];
        children[2 * number + 1] = node[lower == kept ? gone : kept];
        costs[number] = least[kept];
        cuts[kept] += cuts[gone] - 2 * links[kept * n + gone];
        sizes[kept] += sizes[gone];
        own[kept] = cost_of(cost, cuts[kept], sizes[kept]);
        node[kept] = n + number;

        i64 n_left = 0;
        for (i64 a = 0; a < n_alive; a++)
            if (alive[a] != gone)
                alive[n_left++] = alive[a];
        n_alive = n_left;
        for (i64 a = 0; a < n_alive; a++) {
            i64 j = alive[a];
            if (j == kept) {  /* twice its size may lie beyond the table */
                joined[j] = INFINITY;
                continue;
            }
            double link = links[kept * n + j] + links[gone * n + j];
            links[kept * n + j] = links[j * n + kept] = link;
            joined[j] = cost_of(cost, cuts[kept] + cuts[j] - 2 * link, sizes[kept] + sizes[j])
                        - own[kept] - own[j];
        }
        for (i64 a = 0; a < n_alive; a++) {
            i64 j = alive[a];
            added[kept * n + j] = added[j * n + kept] = joined[j];
        }
        /* only fragments whose partner was one of the two lost it; others may have a cheaper one */
        for (i64 a = 0; a < n_alive; a++) {
            i64 i = alive[a];
            if (joined[i] < least[i]) {
                least[i] = joined[i], partner[i] = kept;
            } else if (partner[i] == kept || partner[i] == gone) {
                i64 nearest = alive[0];
                for (i64 b = 1; b < n_alive; b++)
                    if (added[i * n + alive[b]] < added[i * n + nearest])
                        nearest = alive[b];
                partner[i] = nearest, least[i] = added[i * n + nearest];
            }
        }
    }
    free(added), free(scratch), free(numbers);
    return 0;
}

/* the edges of a node that may have merged; ends that have merged since are found when they are read */
typedef struct {
    int32_t *ends;
    double *weight;
    i64 n, is_own;
} Edges;

typedef struct {
    double price;
    i64 one, partner, version, partner_version;
} Pair;

static int is_before(const Pair *a, const Pair *b)
{
    if (a->price != b->price)
        return a->price < b->price;
    return a->one != b->one ? a->one < b->one : a->partner < b->partner;
}

/* puts a pair into a heap that has room at its top, or moves it down from there */
static void sift_down(Pair *heap, i64 n, i64 place, Pair pair)
{
    for (i64 child; (child = 2 * place + 1) < n; place = child) {
        if (child + 1 < n && is_before(heap + child + 1, heap + child))
            child++;
        if (!is_before(heap + child, &pair))
            break;
        heap[place] = heap[child];
    }
    heap[place] = pair;
}

static i64 root_of(i64 *parent, i64 node)
{
    while (parent[node] != node)
        node = parent[node] = parent[parent[node]];
    return node;
}

/* appends edges to those in `into`, joins those that now lead to the same node, drops inner ones */
static i64 gather(const Edges *from, i64 own, i64 *parent, i64 *place, Edges *into, i64 n_before)
{
    i64 n = n_before;
    for (i64 e = 0; e < from->n; e++) {
        i64 end = root_of(parent, from->ends[e]);
        double weight = from->weight[e];
        if (end == own)
            continue;
        if (place[end] < 0) {
            place[end] = n, into->ends[n] = (int32_t)end, into->weight[n] = weight, n++;
        } else {
            into->weight[place[end]] += weight;
        }
    }
    return n;
}

static void tidy(Edges *edges, i64 own, i64 *parent, i64 *place)
{
    edges->n = gather(edges, own, parent, place, edges, 0);
    for (i64 e = 0; e < edges->n; e++)
        place[edges->ends[e]] = -1;
}

static Pair cheapest(const Edges *edges, i64 one, const Cost *cost, const double *cuts, const double *sizes,
                     const double *own, const i64 *version)
{
    Pair found = {INFINITY, one, -1, version[one], 0};
    for (i64 e = 0; e < edges->n; e++) {
        i64 other = edges->ends[e];
        double price = cost_of(cost, cuts[one] + cuts[other] - 2 * edges->weight[e], sizes[one] + sizes[other])
                       - own[other];
        if (price < found.price || found.partner < 0 || (price == found.price && other < found.partner))
            found.price = price, found.partner = other;
    }
    found.price -= own[one], found.partner_version = version[found.partner];
    return found;
}

/* merges the cheapest pair that shares an edge until k nodes, or no edges, are left; returns how many
   are left. Writes to parent the node that each was merged into, its own number if none.

   The heap has the cheapest pair of every node. The price of a pair changes only with its ends, and
   the end that changed last has compared it since: no pair is cheaper than the heap says. A pair whose
   ends have changed, as their versions tell, is looked up again when it reaches the top */
EXPORT i64 merge_linked(const Graph *graph, double *sizes, i64 k, const Cost *cost, i64 *parent)
{
    i64 n = graph->n, n_edges = graph->indptr[n], n_left = n, n_heap = 0, failed = 0;
    int32_t *ends = malloc((size_t)(n_edges + 1) * sizeof *ends);
    double *weight = malloc((size_t)(n_edges + 1) * sizeof *weight);
    double *scratch = malloc((size_t)(2 * n) * sizeof *scratch);
    i64 *numbers = malloc((size_t)(2 * n) * sizeof *numbers);
    Edges *near = malloc((size_t)n * sizeof *near);
    Pair *heap = malloc((size_t)n * sizeof *heap);
    if (!ends || !weight || !scratch || !numbers || !near || !heap) {
        free(ends), free(weight), free(scratch), free(numbers), free(near), free(heap);
        return -1;
    }
    double *cuts = scratch, *own = scratch + n;
    i64 *version = numbers, *place = numbers + n;
    memcpy(ends, graph->indices, (size_t)n_edges * sizeof *ends);
    for (i64 e = 0; e < n_edges; e++)
        weight[e] = weight_of(graph, e);
    for (i64 i = 0; i < n; i++) {
        i64 start = graph->indptr[i];
        near[i] = (Edges){ends + start, weight + start, graph->indptr[i + 1] - start, 0};
        parent[i] = i, version[i] = 0, place[i] = -1, cuts[i] = 0;
        for (i64 e = 0; e < near[i].n; e++)
            cuts[i] += near[i].weight[e];
        own[i] = cost_of(cost, cuts[i], sizes[i]);
    }
    for (i64 i = 0; i < n; i++)
        if (near[i].n > 0)
            heap[n_heap++] = cheapest(near + i, i, cost, cuts, sizes, own, version);
    for (i64 i = n_heap / 2 - 1; i >= 0; i--)
        sift_down(heap, n_heap, i, heap[i]);
    while (n_left > k && n_heap > 0) {
        i64 kept = heap[0].one, gone = heap[0].partner;
        int is_old = version[kept] != heap[0].version;
        if (!is_old)
            tidy(near + kept, kept, parent, place);
        if (!is_old && version[gone] == heap[0].partner_version) {
            tidy(near + gone, gone, parent, place);
            if (near[kept].n < near[gone].n) {
                i64 other = kept;
                kept = gone, gone = other;
            }
            i64 n_most = near[kept].n + near[gone].n;
            Edges joined = {malloc((size_t)n_most * sizeof *ends), malloc((size_t)n_most * sizeof *weight), 0, 1};
            if (!joined.ends || !joined.weight) {
                free(joined.ends), free(joined.weight);
                failed = -1;
                break;
            }
            double between = 0;
            for (i64 e = 0; e < near[kept].n; e++)
                if (near[kept].ends[e] == gone)
                    between = near[kept].weight[e];
            cuts[kept] += cuts[gone] - 2 * between;
            sizes[kept] += sizes[gone];
            parent[gone] = kept, n_left--;
            joined.n = gather(near + kept, kept, parent, place, &joined, 0);
            joined.n = gather(near + gone, kept, parent, place, &joined, joined.n);
            for (i64 e = 0; e < joined.n; e++)
                place[joined.ends[e]] = -1;
            for (int b = 0; b < 2; b++) {
                Edges *old = near + (b ? gone : kept);
                if (old->is_own)
                    free(old->ends), free(old->weight);
                old->n = old->is_own = 0;
            }
            near[kept] = joined;
            version[gone] = -1, version[kept]++;
            own[kept] = cost_of(cost, cuts[kept], sizes[kept]);
        }
        /* the pair at the top gives way to the cheapest of its node, if that has one */
        if (!is_old && near[kept].n > 0)
            sift_down(heap, n_heap, 0, cheapest(near + kept, kept, cost, cuts, sizes, own, version));
        else if (--n_heap > 0)
            sift_down(heap, n_heap, 0, heap[n_heap]);
    }
    for (i64 i = 0; i < n; i++)
        if (near[i].is_own)
            free(near[i].ends), free(near[i].weight);
    free(ends), free(weight), free(scratch), free(numbers), free(near), free(heap);
    return failed < 0 ? failed : n_left;
}

/* ---- moves.py: passes of moves, after Fiduccia and Mattheyses ---------------------------------- */

/* clusters among which a fragment may enter any */
#define FEW_CLUSTERS 32

/* a partition of fragments. Among many clusters, a fragment may enter those that it has edges to, those
   that it pays less in than elsewhere, the smallest and the largest. Links to a cluster are summed from
   the edges of its fragments when they are needed: no table of fragments and clusters is kept */
typedef struct {
    const Graph *graph;
    const double *node_sizes;
    Cost cost;
    i64 n, k;
    const double *paid;            /* by every fragment in every cluster (n, k), or NULL */
    double least_size, most_size;  /* of a cluster while moves are tried */
    double least, most, rounding;  /* of a cluster where moves end, or as far outside as before */
    double *degree, *leave, *entry, *dearest, *link, *cuts, *sizes, *link_to;
    i64 *target, *labels, *made, *from, *near;
    i64 *head, *next, *previous;   /* fragments of every cluster, as lists */
    unsigned char *is_free, *is_near, *is_stale;
    double objective;
} Moves;

static void enlist(Moves *m, i64 i, i64 cluster)
{
    m->previous[i] = -1, m->next[i] = m->head[cluster];
    if (m->head[cluster] >= 0)
        m->previous[m->head[cluster]] = i;
    m->head[cluster] = i;
}

static void unlist(Moves *m, i64 i, i64 cluster)
{
    if (m->previous[i] >= 0)
        m->next[m->previous[i]] = m->next[i];
    else
        m->head[cluster] = m->next[i];
    if (m->next[i] >= 0)
        m->previous[m->next[i]] = m->previous[i];
}

/* lists, cuts, sizes and the objective, from the labels */
static void count(Moves *m)
{
    const Graph *graph = m->graph;
    for (i64 c = 0; c < m->k; c++)
        m->cuts[c] = m->sizes[c] = 0, m->head[c] = -1;
    m->objective = m->cost.factor * log((double)m->k);
    for (i64 i = m->n - 1; i >= 0; i--) {
        i64 own = m->labels[i];
        enlist(m, i, own);
        m->sizes[own] += m->node_sizes[i];
        for (i64 e = graph->indptr[i]; e < graph->indptr[i + 1]; e++)
            if (m->labels[graph->indices[e]] != own)
                m->cuts[own] += weight_of(graph, e);
        if (m->paid)
            m->objective += m->paid[i * m->k + own];
    }
    for (i64 c = 0; c < m->k; c++)
        if (m->sizes[c] > 0)
            m->objective += cost_of(&m->cost, m->cuts[c], m->sizes[c]);
}

/* what the objective rises by when a fragment with so much weight to a cluster enters it */
static inline double price_entry(const Moves *m, i64 i, i64 c, double link, double cost)
{
    double size = m->sizes[c] + m->node_sizes[i];
    if (size > m->most_size)
        return INFINITY;
    double price = cost_of(&m->cost, m->cuts[c] + m->degree[i] - 2 * link, size) - cost;
    return m->paid ? price + m->paid[i * m->k + c] : price;
}

/* and when it leaves its own */
static inline double price_leaving(const Moves *m, i64 i, double link, double cost)
{
    i64 own = m->labels[i];
    double left = m->sizes[own] - m->node_sizes[i];
    if (left <= m->least_size)
        return INFINITY;
    double price = cost_of(&m->cost, m->cuts[own] - m->degree[i] + 2 * link, left) - cost;
    return m->paid ? price - m->paid[i * m->k + own] : price;
}

static inline double cost_of_cluster(const Moves *m, i64 c)
{
    return m->sizes[c] > 0 ? cost_of(&m->cost, m->cuts[c], m->sizes[c]) : 0;
}

/* whether a fragment may enter a cluster that it has no edge to: any of few, since parts of a cluster
   that share no edge must change places now and then; among many this costs too much */
static inline int may_enter(const Moves *m, i64 i, i64 c)
{
    return m->k <= FEW_CLUSTERS || (m->paid && m->paid[i * m->k + c] < m->dearest[i]);
}

static inline void compare(Moves *m, i64 i, i64 c, double price)
{
    if (price < m->entry[i] || (price == m->entry[i] && c < m->target[i]))
        m->entry[i] = price, m->target[i] = c;
}

/* prices a fragment in all clusters that it may enter */
static void price(Moves *m, i64 i)
{
    const Graph *graph = m->graph;
    i64 own = m->labels[i], n_near = 0;
    double *link = m->link;
    for (i64 e = graph->indptr[i]; e < graph->indptr[i + 1]; e++) {
        i64 c = m->labels[graph->indices[e]];
        if (link[c] == 0)
            m->near[n_near++] = c;
        link[c] += weight_of(graph, e);
    }
    m->leave[i] = price_leaving(m, i, link[own], cost_of_cluster(m, own));
    m->entry[i] = INFINITY, m->target[i] = m->k;
    for (i64 c = 0; (m->paid || m->k <= FEW_CLUSTERS) && c < m->k; c++)
        if (c != own && link[c] == 0 && may_enter(m, i, c))
            compare(m, i, c, price_entry(m, i, c, 0, cost_of_cluster(m, c)));
    for (i64 b = 0; b < n_near; b++) {
        i64 c = m->near[b];
        if (c != own)
            compare(m, i, c, price_entry(m, i, c, link[c], cost_of_cluster(m, c)));
    }
    for (i64 b = 0; b < n_near; b++)
        link[m->near[b]] = 0;
}

/* sums the links of all fragments to a cluster; lists the fragments that are linked to it or in it */
static i64 sum_links(Moves *m, i64 cluster)
{
    const Graph *graph = m->graph;
    i64 n_near = 0;
    for (i64 a = m->head[cluster]; a >= 0; a = m->next[a]) {
        if (!m->is_near[a])
            m->is_near[a] = 1, m->near[n_near++] = a;
        for (i64 e = graph->indptr[a]; e < graph->indptr[a + 1]; e++) {
            i64 i = graph->indices[e];
            if (!m->is_near[i])
                m->is_near[i] = 1, m->near[n_near++] = i;
            m->link_to[i] += weight_of(graph, e);
        }
    }
    for (i64 i = 0; (m->paid || m->k <= FEW_CLUSTERS) && i < m->n; i++)
        if (!m->is_near[i] && may_enter(m, i, cluster))
            m->is_near[i] = 1, m->near[n_near++] = i;
    return n_near;
}

static void forget_links(Moves *m, i64 n_near)
{
    for (i64 b = 0; b < n_near; b++)
        m->is_near[m->near[b]] = 0, m->link_to[m->near[b]] = 0;
}

/* prices a cluster that has changed for the free fragments that are in it or may enter it */
static void price_cluster(Moves *m, i64 c)
{
    double cost = cost_of_cluster(m, c);
    i64 n_near = sum_links(m, c);
    for (i64 b = 0; b < n_near; b++) {
        i64 i = m->near[b];
        if (!m->is_free[i])
            continue;
        if (m->labels[i] == c) {
            m->leave[i] = price_leaving(m, i, m->link_to[i], cost);
            continue;
        }
        double entry = price_entry(m, i, c, m->link_to[i], cost);
        if (m->target[i] == c && entry > m->entry[i])
            m->is_stale[i] = 1;  /* another cluster may be cheaper now */
        else if (m->target[i] == c)
            m->entry[i] = entry;
        else
            compare(m, i, c, entry);
    }
    forget_links(m, n_near);
}

static void move(Moves *m, i64 fragment, i64 before, i64 after)
{
    const Graph *graph = m->graph;
    double to_before = 0, to_after = 0, degree = m->degree[fragment];
    m->is_free[fragment] = 0;
    for (i64 e = graph->indptr[fragment]; e < graph->indptr[fragment + 1]; e++) {
        i64 i = graph->indices[e];
        to_before += m->labels[i] == before ? weight_of(graph, e) : 0;
        to_after += m->labels[i] == after ? weight_of(graph, e) : 0;
        if (m->target[i] == before)  /* this may have been its last edge there */
            m->is_stale[i] = 1;
    }
    m->cuts[before] += 2 * to_before - degree;
    m->cuts[after] += degree - 2 * to_after;
    m->sizes[before] -= m->node_sizes[fragment];
    m->sizes[after] += m->node_sizes[fragment];
    unlist(m, fragment, before), enlist(m, fragment, after);
    m->labels[fragment] = after;
    price_cluster(m, before), price_cluster(m, after);
    for (i64 i = 0; i < m->n; i++)
        if (m->is_stale[i]) {
            m->is_stale[i] = 0;
            if (m->is_free[i])
                price(m, i);
        }
}

/* by how much a size lies outside its limits */
static double excess(const Moves *m, i64 cluster)
{
    double size = m->sizes[cluster];
    return fmax(fmax(size - m->most, m->least - size), 0);
}

/* moves every fragment at most once, the cheapest move first even if it costs, until `patience` moves
   have found no new minimum; then undoes the moves after the minimum */
static void run_pass(Moves *m, double patience)
{
    i64 n = m->n, n_made = 0, n_kept = 0;
    double change = 0, least = 0, outside = 0;  /* outside: compared with before the pass */
    int is_bounded = m->most < INFINITY || m->least > 0;
    memset(m->is_free, 1, (size_t)n);
    for (i64 i = 0; i < n; i++)
        price(m, i);
    while ((double)(n_made - n_kept) <= patience) {
        /* a cluster that is too large gives next, or one too small takes, until all are within */
        i64 best = -1, after = -1, over = -1, under = -1;
        double lowest = INFINITY;
        for (i64 c = 0; is_bounded && c < m->k; c++)
            if (m->sizes[c] > m->most + m->rounding)
                over = c;
            else if (m->sizes[c] < m->least - m->rounding)
                under = c;
        if (over < 0 && under >= 0) {
            i64 n_near = sum_links(m, under);
            double cost = cost_of_cluster(m, under);
            for (i64 i = 0; i < n; i++) {
                if (!m->is_free[i] || m->labels[i] == under)
                    continue;
                double change_by = price_entry(m, i, under, m->link_to[i], cost) + m->leave[i];
                if (change_by < lowest)
                    lowest = change_by, best = i, after = under;
            }
            forget_links(m, n_near);
        } else {
            /* parts of different clusters may share no edge, so all may enter the smallest cluster and
               the largest: a fragment with edges to one of these has a lower price for it already */
            i64 open[2] = {0, 0};
            for (i64 c = 1; c < m->k; c++) {
                open[0] = m->sizes[c] < m->sizes[open[0]] ? c : open[0];
                open[1] = m->sizes[c] > m->sizes[open[1]] ? c : open[1];
            }
            double costs[2] = {cost_of_cluster(m, open[0]), cost_of_cluster(m, open[1])};
            for (i64 i = 0; i < n; i++) {
                if (!m->is_free[i] || (over >= 0 && m->labels[i] != over))
                    continue;
                i64 to = m->target[i];
                double entry = m->entry[i];
                for (int b = 0; b < 2; b++) {
                    double price = m->labels[i] == open[b] ? INFINITY : price_entry(m, i, open[b], 0, costs[b]);
                    if (price < entry)
                        entry = price, to = open[b];
                }
                if (entry + m->leave[i] < lowest)
                    lowest = entry + m->leave[i], best = i, after = to;
            }
        }
        if (best < 0)
            break;
        i64 before = m->labels[best];
        change += lowest;
        outside -= excess(m, before) + excess(m, after);
        move(m, best, before, after);
        outside += excess(m, before) + excess(m, after);
        m->made[n_made] = best, m->from[n_made++] = before;
        if (change < least - 1e-15 && outside <= m->rounding)
            least = change, n_kept = n_made;
    }
    while (n_made-- > n_kept)
        m->labels[m->made[n_made]] = m->from[n_made];
    count(m);
}

/* runs passes until one lowers the objective by less than the fraction least_gain. Sizes end between
   least and most, or as far outside as before; moves on the way may leave the limits by slack.
   Changes the labels and writes their objective */
EXPORT i64 improve(const Graph *graph, const double *sizes, i64 k, const Cost *cost,
                   const double *paid, double least, double most, double slack, double patience,
                   double least_gain, i64 *labels, double *objective)
{
    i64 n = graph->n, n_near = n > k ? n : k;
    double *scratch = calloc((size_t)(5 * n + 3 * k), sizeof *scratch);
    i64 *numbers = malloc((size_t)(5 * n + k + n_near) * sizeof *numbers);
    unsigned char *flags = calloc((size_t)(3 * n), 1);
    if (!scratch || !numbers || !flags) {
        free(scratch), free(numbers), free(flags);
        return -1;
    }
    Moves m = {.n = n, .k = k, .graph = graph, .node_sizes = sizes, .cost = *cost, .paid = paid};
    m.least_size = sizes[0];
    for (i64 i = 1; i < n; i++)
        m.least_size = sizes[i] < m.least_size ? sizes[i] : m.least_size;
    m.least_size /= 2;  /* less is what rounding leaves of an empty cluster */
    m.least = least, m.most = most, m.rounding = 1e-9 * cost->n_samples;
    m.least_size = fmax(m.least_size, least - slack - m.rounding);
    m.most_size = most + slack + m.rounding;
    m.degree = scratch, m.leave = scratch + n, m.entry = scratch + 2 * n, m.dearest = scratch + 3 * n;
    m.link_to = scratch + 4 * n, m.cuts = scratch + 5 * n, m.sizes = m.cuts + k, m.link = m.sizes + k;
    m.target = numbers, m.made = numbers + n, m.from = numbers + 2 * n, m.next = numbers + 3 * n;
    m.previous = numbers + 4 * n, m.head = numbers + 5 * n, m.near = m.head + k, m.labels = labels;
    m.is_free = flags, m.is_near = flags + n, m.is_stale = flags + 2 * n;
    for (i64 i = 0; i < n; i++) {
        for (i64 e = graph->indptr[i]; e < graph->indptr[i + 1]; e++)
            m.degree[i] += weight_of(graph, e);
        for (i64 c = 0; paid && c < k; c++)
            m.dearest[i] = fmax(m.dearest[i], paid[i * k + c]);
    }
    count(&m);
    double lowest;
    do {
        lowest = m.objective;
        run_pass(&m, patience);
    } while (m.objective < lowest - least_gain * fabs(lowest));
    *objective = m.objective;
    free(scratch), free(numbers), free(flags);
    return 0;
}

/* ---- sweep.py: moves of nodes, one after the other --------------------------------------------- */

/* adds to the cut of every cluster the weights of the edges that leave it */
EXPORT i64 partition_cuts(const Graph *graph, const i64 *labels, double *cuts)
{
    for (i64 row = 0; row < graph->n; row++) {
        double cut = 0;
        for (i64 e = graph->indptr[row]; e < graph->indptr[row + 1]; e++)
            if (labels[graph->indices[e]] != labels[row])
                cut += weight_of(graph, e);
        cuts[labels[row]] += cut;
    }
    return 0;
}

/* prcut.search.prices.Prices: NULL, and no nodes in apart, where there are none */
typedef struct {
    const i64 *preferred;
    const double *price, *least, *most;
    Graph apart;
} Prices;

/* moves node after node to the best cluster of a neighbour, at once: labels, cuts and sizes follow.
   The cluster that a node prefers, and every one where it meets a node that it is kept apart from,
   are considered as well. Returns the number of moves, or -1 without memory */
EXPORT i64 sweep(const Graph *graph, const double *node_sizes, i64 k, i64 n_sweeps, const Cost *cost,
                 const Prices *prices, double least_gain, i64 *labels, double *cuts, double *sizes)
{
    double *costs = malloc((size_t)k * sizeof *costs);
    double *link = calloc((size_t)k, sizeof *link), *met = calloc((size_t)k, sizeof *met);
    i64 *near = malloc((size_t)k * sizeof *near);
    i64 n_moved = costs && link && met && near ? 0 : -1, n_before = -1;
    const Graph *apart = &prices->apart;
    for (i64 c = 0; n_moved == 0 && c < k; c++)
        costs[c] = sizes[c] > 0 ? cost_of(cost, cuts[c], sizes[c]) : 0;
    for (i64 round = 0; round < n_sweeps && n_moved > n_before; round++) {
        n_before = n_moved;
        for (i64 node = 0; node < graph->n; node++) {
            i64 own = labels[node], best = -1, n_near = 0;
            i64 preferred = prices->preferred ? prices->preferred[node] : -1;
            double degree = 0, size = node_sizes[node], left = sizes[own] - size;
            double price = preferred < 0 ? 0 : prices->price[node];
            for (i64 e = graph->indptr[node]; e < graph->indptr[node + 1]; e++) {
                i64 c = labels[graph->indices[e]];
                if (link[c] == 0)
                    near[n_near++] = c;
                link[c] += weight_of(graph, e);
                degree += weight_of(graph, e);
            }
            if (preferred >= 0 && link[preferred] == 0)
                near[n_near++] = preferred;
            for (i64 e = apart->n ? apart->indptr[node] : 0; apart->n && e < apart->indptr[node + 1]; e++)
                met[labels[apart->indices[e]]] += weight_of(apart, e);
            for (i64 c = 0; met[own] > 0 && c < k; c++)
                if (link[c] == 0 && c != preferred)
                    near[n_near++] = c;
            if (n_near > 0 && left > prices->least[own]) {
                double cut_left = cuts[own] - degree + 2 * link[own];
                double leave = cost_of(cost, cut_left, left) - costs[own], least = -least_gain;
                for (i64 b = 0; b < n_near; b++) {
                    i64 c = near[b];
                    double gain = INFINITY;
                    if (c != own && sizes[c] + size < prices->most[c]) {
                        gain = leave + (cost_of(cost, cuts[c] + degree - 2 * link[c],
                                                sizes[c] + size) - costs[c]);
                        gain += met[c] - met[own];
                        gain += own == preferred ? price : c == preferred ? -price : 0;
                    }
                    if (gain < least || (gain == least && c < best))
                        least = gain, best = c;
                }
                if (best >= 0) {
                    cuts[own] = cut_left, sizes[own] = left;
                    cuts[best] += degree - 2 * link[best], sizes[best] += size;
                    costs[own] = cost_of(cost, cuts[own], sizes[own]);
                    costs[best] = cost_of(cost, cuts[best], sizes[best]);
                    labels[node] = best, n_moved++;
                }
            }
            for (i64 b = 0; b < n_near; b++)
                link[near[b]] = 0;
            for (i64 e = apart->n ? apart->indptr[node] : 0; apart->n && e < apart->indptr[node + 1]; e++)
                met[labels[apart->indices[e]]] = 0;
        }
    }
    free(costs), free(link), free(met), free(near);
    return n_moved;
}

/* ---- fragments.py: groups of rows, and the graph between them ---------------------------------- */

/* groups of up to most rows: every row, in the given order, joins the group that it has the heaviest
   links to, if there is room; a few rounds. Groups start as single rows */
EXPORT i64 propagate(const Graph *graph, const i64 *order, i64 most, i64 n_rounds, i64 *groups)
{
    i64 most_edges = 1;
    for (i64 row = 0; row < graph->n; row++) {
        i64 n_edges = graph->indptr[row + 1] - graph->indptr[row];
        most_edges = n_edges > most_edges ? n_edges : most_edges;
    }
    double *link = calloc((size_t)graph->n, sizeof *link);
    int32_t *sizes = malloc((size_t)graph->n * sizeof *sizes);
    i64 *near = malloc((size_t)most_edges * sizeof *near);
    i64 failed = !link || !sizes || !near;
    for (i64 row = 0; !failed && row < graph->n; row++)
        sizes[row] = 1, groups[row] = row;
    for (i64 round = 0; !failed && round < n_rounds; round++) {
        i64 n_moved = 0;
        for (i64 a = 0; a < graph->n; a++) {
            i64 row = order[a], own = groups[row], n_near = 0;
            for (i64 e = graph->indptr[row]; e < graph->indptr[row + 1]; e++) {
                i64 group = groups[graph->indices[e]];
                if (link[group] == 0)
                    near[n_near++] = group;
                link[group] += weight_of(graph, e);
            }
            i64 best = own;
            double heaviest = link[own];
            for (i64 b = 0; b < n_near; b++) {
                i64 group = near[b];
                int heavier = link[group] > heaviest;
                int first = link[group] == heaviest && best != own && group < best;
                if ((heavier || first) && group != own && sizes[group] < most)
                    heaviest = link[group], best = group;
            }
            for (i64 b = 0; b < n_near; b++)
                link[near[b]] = 0;
            if (best != own)
                sizes[own]--, sizes[best]++, groups[row] = best, n_moved++;
        }
        if (n_moved == 0)
            break;
    }
    free(link), free(sizes), free(near);
    return -failed;
}

/* the graph between groups, whose rows are listed group by group in members; a group's own links
   are kept if keeps_inner. Returns the number of entries; the outputs have room for one per edge */
EXPORT i64 contract(const Graph *graph, const i64 *groups, i64 n_groups, const i64 *members,
                    const i64 *first, i64 keeps_inner, i64 *indptr, int32_t *indices, double *weight)
{
    double *link = calloc((size_t)n_groups, sizeof *link);
    i64 n_entries = link ? 0 : -1;
    indptr[0] = 0;
    for (i64 group = 0; link && group < n_groups; group++) {
        i64 begin = n_entries;
        for (i64 a = first[group]; a < first[group + 1]; a++) {
            i64 row = members[a];
            for (i64 e = graph->indptr[row]; e < graph->indptr[row + 1]; e++) {
                i64 other = groups[graph->indices[e]];
                if (other == group && !keeps_inner)
                    continue;
                if (link[other] == 0)
                    indices[n_entries++] = (int32_t)other;
                link[other] += weight_of(graph, e);
            }
        }
        for (i64 e = begin; e < n_entries; e++) {
            weight[e] = link[indices[e]];
            link[indices[e]] = 0;
        }
        indptr[group + 1] = n_entries;
    }
    free(link);
    return n_entries;
}
